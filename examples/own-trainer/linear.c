/* A trainer in plain C: y = w x + b, fitted by gradient descent to samples that the seed, the part and the position give.
 *
 *   cc linear.c -latoll_trainer -lm -o linear       (CMake: find_package(atoll_trainer), then link atoll::trainer)
 *   atoll local linear.toml --trainer linear=./linear
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll_trainer.h"

#define SIZE 64
#define BATCH 16

static float parameters[SIZE + 1], gradient[SIZE + 1]; /* w, then b */
static double losses[1000000];
static size_t losses_count;

/* Numbers of [-1, 1) that any machine draws alike. */
static double draw(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15ULL;
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0;
}

/* The number after "key": in the settings; JSON libraries do this better. */
static double number_of(const char* json, const char* key, double otherwise) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char* found = strstr(json, quoted);
  return found == NULL ? otherwise : strtod(found + strlen(quoted), NULL);
}

static double compute_gradient(uint64_t seed, uint64_t part, uint64_t position) {
  double sum = 0, slopes[SIZE + 1] = {0};
  for (uint64_t i = 0; i < BATCH; ++i) {
    uint64_t state = seed * 1000003 + part * 7919 + (position + i) * 104729;
    double x[SIZE + 1], error = -1;
    for (int k = 0; k < SIZE; ++k) {
      x[k] = draw(&state);
      error += x[k] * (parameters[k] - sin(k));
    }
    x[SIZE] = 1;
    error += parameters[SIZE];
    sum += error * error;
    for (int k = 0; k <= SIZE; ++k) {
      slopes[k] += 2 * error * x[k] / BATCH;
    }
  }
  for (int k = 0; k <= SIZE; ++k) {
    gradient[k] = (float)slopes[k];
  }
  return sum / BATCH;
}

static void update(double rate) {
  for (int k = 0; k <= SIZE; ++k) {
    parameters[k] -= (float)rate * gradient[k];
  }
}

static void copy(atoll_trainer* trainer, const atoll_order* order) {
  const int whole_gradient = order->kind == ATOLL_WRITE_GRADIENT || order->kind == ATOLL_READ_GRADIENT;
  size_t count = 0;
  const atoll_entry* entries = atoll_trainer_entries(trainer, &count);
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].fragment != order->fragment) {
      continue;
    }
    float* arena = atoll_trainer_arena(trainer) + entries[i].offset;
    float* own = (whole_gradient ? gradient : parameters) + (entries[i].parameter == 0 ? 0 : SIZE);
    for (uint64_t k = 0; k < entries[i].count; ++k) {
      if (order->kind == ATOLL_WRITE || order->kind == ATOLL_WRITE_GRADIENT) {
        arena[k] = own[k];
      } else {
        own[k] = (float)order->alpha * own[k] + (float)(1 - order->alpha) * arena[k];
      }
    }
  }
}

static const char* exchange_file(const char* directory, const char* mode) {
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/parameters", directory);
  FILE* file = length < (int)sizeof path ? fopen(path, mode) : NULL;
  const int writes = mode[0] == 'w';
  size_t done = 0;
  if (file != NULL) {
    done = writes ? fwrite(parameters, sizeof parameters, 1, file) : fread(parameters, sizeof parameters, 1, file);
  }
  return file == NULL || fclose(file) != 0 || done != 1 ? "the parameters cannot be written or read" : NULL;
}

/* The directory of "resume" in the settings; false where there is none. */
static int resume_directory(const char* json, char* directory, size_t size) {
  const char* resume = strstr(json, "\"resume\":{");
  const char* begin = resume == NULL ? NULL : strstr(resume, "\"directory\":\"");
  if (begin == NULL) {
    return 0;
  }
  begin += strlen("\"directory\":\"");
  snprintf(directory, size, "%.*s", (int)strcspn(begin, "\""), begin);
  return 1;
}

static atoll_answer carry_out(atoll_trainer* trainer, const atoll_order* order, uint64_t seed, uint64_t part, double rate) {
  atoll_answer answer;
  memset(&answer, 0, sizeof answer);
  switch (order->kind) {
    case ATOLL_STEP:
    case ATOLL_GRADIENT:
      losses[losses_count++ % (sizeof losses / sizeof losses[0])] = compute_gradient(seed, part, order->position);
      if (order->kind == ATOLL_STEP) {
        update(rate);
      }
      answer.samples = answer.tokens = BATCH;
      break;
    case ATOLL_UPDATE:
      update(rate);
      break;
    case ATOLL_REPORT:
      answer.losses = losses;
      answer.losses_count = losses_count;
      for (int k = 0; k <= SIZE; ++k) {
        answer.norm += (double)gradient[k] * gradient[k];
      }
      answer.norm = sqrt(answer.norm);
      losses_count = 0;
      break;
    case ATOLL_SAVE:
      answer.error = exchange_file(order->directory, "wb");
      break;
    case ATOLL_STAND_AT:
    case ATOLL_EVALUATE: /* nothing is held out */
      break;
    default:
      copy(trainer, order);
  }
  return answer;
}

int main(void) {
  char why[1000], directory[4096];
  atoll_trainer* trainer = atoll_trainer_join(NULL, "linear", "1", 1, why, sizeof why);
  if (trainer == NULL) {
    fprintf(stderr, "linear: %s\n", why);
    return 1;
  }
  const char* json = atoll_trainer_configuration(trainer);
  const uint64_t seed = (uint64_t)number_of(json, "seed", 1), part = (uint64_t)number_of(json, "part", 0);
  const double rate = number_of(json, "rate", 0.02);
  const uint64_t shape_w[] = {SIZE}, shape_b[] = {1};
  const atoll_parameter manifest[] = {{"w", shape_w, 1, 0, 0}, {"b", shape_b, 1, 0, 0}};
  int status = atoll_trainer_declare(trainer, manifest, 2, NULL);
  if (status == ATOLL_OK && resume_directory(json, directory, sizeof directory)) {
    const char* failure = exchange_file(directory, "rb");
    if (failure != NULL) {
      atoll_trainer_fail(trainer, failure, 0);
      atoll_trainer_leave(trainer);
      return 1;
    }
  }
  atoll_order order;
  memset(&order, 0, sizeof order);
  status = status == ATOLL_OK ? atoll_trainer_ready(trainer, 0) : status;
  while (status == ATOLL_OK && (status = atoll_trainer_next(trainer, -1, &order)) == ATOLL_OK && order.kind != ATOLL_STOP) {
    const atoll_answer answer = carry_out(trainer, &order, seed, part, rate);
    status = atoll_trainer_answer(trainer, &answer);
  }
  if (status != ATOLL_OK) {
    fprintf(stderr, "linear: %s\n", atoll_trainer_why(trainer));
  }
  atoll_trainer_leave(trainer);
  return status == ATOLL_OK || status == ATOLL_GONE ? 0 : 1;
}
