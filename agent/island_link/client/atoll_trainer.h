/* libatoll_trainer: a trainer's side of the island link, in C.
 *
 * A trainer pulls: it asks for the next order, carries it out, answers it, and asks again. The library speaks to the agent, keeps the
 * counters, waits for results, saves atomically and knows what is due when; the model, the optimiser and the data are the trainer's.
 *
 *   atoll_trainer* t = atoll_trainer_join(NULL, "mine", "1.0", 1, why, sizeof why);
 *   ... atoll_trainer_configuration(t): JSON of the run's settings, seed, part of the data ...
 *   atoll_trainer_declare(t, parameters, count, NULL);
 *   ... begin, or restore what configuration.resume names ...
 *   atoll_trainer_ready(t, samples_in_my_part);
 *   while (atoll_trainer_next(t, -1, &order) == ATOLL_OK && order.kind != ATOLL_STOP) {
 *     ... carry it out ...
 *     atoll_trainer_answer(t, &answer);
 *   }
 *   atoll_trainer_leave(t);
 *
 * agent/island_link/README.md describes the protocol, docs/own-trainer.md how a trainer is started. Threads: one at a time for one trainer.
 * No function throws or ends the process. Functions return ATOLL_OK or a negative code; atoll_trainer_why() has the reason as one line.
 * Memory that a function returns is the library's and lives until atoll_trainer_leave(), texts until the next call.
 */
#ifndef ATOLL_TRAINER_H
#define ATOLL_TRAINER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATOLL_TRAINER_VERSION 1 /* of this interface; grows with what breaks a caller */

typedef struct atoll_trainer atoll_trainer;

enum {
  ATOLL_OK = 0,
  ATOLL_GONE = -1,    /* the agent is gone, or says stop before the trainer was ready: exit */
  ATOLL_REFUSED = -2, /* the caller asks for something impossible; nothing has changed */
  ATOLL_BROKEN = -3   /* the agent says something that cannot be, or a file or the memory cannot be had */
};

/* What an order asks for. Fields of atoll_order that an order does not name have no meaning. */
enum {
  ATOLL_NONE = 0,     /* nothing came within the time: ask again */
  ATOLL_STOP = 1,     /* leave, and exit with status 0 */
  ATOLL_STEP = 2,     /* do inner step `step`; answer samples, tokens */
  ATOLL_GRADIENT = 3, /* payload gradient: forward and backward of inner step `step`; answer samples, tokens */
  ATOLL_UPDATE = 4,   /* payload gradient: clip, and take the optimiser's step of that gradient */
  ATOLL_REPORT = 5,   /* answer the losses of the steps since the last report; the last gradient's norm if wants_norm */
  ATOLL_WRITE = 6,    /* copy the parameters of `fragment` into the arena */
  ATOLL_WRITE_GRADIENT = 7,
  ATOLL_MERGE = 8,         /* p = alpha p + (1 - alpha) arena for `fragment`, in float32; alpha 0 is an exact copy */
  ATOLL_READ_GRADIENT = 9, /* take the gradient of `fragment` from the arena */
  ATOLL_STAND_AT = 10,     /* steps are left out, or were done elsewhere: stand at `step` and `position` */
  ATOLL_EVALUATE = 11,     /* answer has_loss and loss over the held-out data, and batches */
  ATOLL_SAVE = 12,         /* write what is needed to continue into the empty folder `directory`; answer error if that failed */
  ATOLL_FETCH = 13         /* the result that a later MERGE of `fragment` takes lies in the arena: a copy of it may begin. Only for those that
                              have answered ATOLL_BEGUN */
};

/* What becomes of values that no optimiser trains, such as BatchNorm's running mean: no outer step moves them. */
enum {
  ATOLL_BUFFER_MEAN = 1, /* after a round all have the mean of the islands' own */
  ATOLL_BUFFER_ONE = 2   /* after a round all have those of the first island that contributed (in pairs: the pair's mean) */
};

/* How a run ends for a trainer. */
enum {
  ATOLL_LEFT = 0,          /* it goes on without this trainer, or was cancelled: end soon */
  ATOLL_COMPLETE = 1,      /* it is completed, and its last parameters were merged with alpha 0: there is time to use them (docs/own-trainer.md) */
  ATOLL_COMPLETE_FIRST = 2 /* the same, and of all islands this is the one that writes what is written once */
};

typedef struct {
  const char* name;      /* unique */
  const uint64_t* shape; /* `dimensions` numbers of at least 1, none of a single number; the arena holds the tensor row by row */
  size_t dimensions;
  int32_t block;  /* -1 embeddings, 0 ... L-1 the layers, L what comes after them */
  int32_t buffer; /* 0: it is trained; else an ATOLL_BUFFER_ */
} atoll_parameter;

/* Where a parameter lies: float32 elements `offset` to `offset + count` of the arena, part of one fragment. */
typedef struct {
  uint32_t parameter; /* in the order of atoll_trainer_declare() */
  uint32_t fragment;
  uint64_t offset;
  uint64_t count;
} atoll_entry;

typedef struct {
  int32_t kind;
  uint32_t fragment;
  uint64_t step;
  uint64_t position;   /* samples done */
  uint64_t free_until; /* of ATOLL_STEP: steps up to this one may be done at once and answered as one */
  double alpha;
  int32_t wants_norm;
  int32_t fetched; /* of ATOLL_MERGE: the arena holds what the last ATOLL_FETCH of `fragment` was for */
  const char* directory; /* until the next call */
  double progress; /* of ATOLL_STEP, ATOLL_GRADIENT and ATOLL_UPDATE: the share of the run that is done with it, 0 to 1, for learning rates */
  uint64_t deals; /* how often the data were dealt anew among the islands: when it has grown, atoll_trainer_configuration() says other `data` */
} atoll_order;

/* A number of the trainer's own, for whoever watches the run: "accuracy". */
typedef struct {
  const char* name; /* at most 64 bytes */
  double value;
} atoll_metric;

/* Which part of an order is answered. Copies between a GPU and the arena, numbers that a GPU computes, and saves may go on beside the steps. */
enum {
  ATOLL_WHOLE = 0, /* it is done */
  ATOLL_BEGUN = 1, /* of copies (WRITE, FETCH, MERGE, …) and REPORT: it goes on; the next order may be asked for. Of SAVE where the configuration
                      has `saves_beside` and its payload is parameters: the state of this moment is in hand, and is written beside the steps */
  ATOLL_ENDED = 2, /* the oldest copy or report that was begun has ended; this is its answer, whatever order is in hand */
  ATOLL_SAVED = 3  /* the SAVE that was begun has ended: all is in `directory`, or `error` says why not */
};

/* Set all of it to zero, then what the order asks for. */
typedef struct {
  uint64_t steps; /* of ATOLL_STEP, done at once; 0 is 1 */
  uint64_t samples;
  uint64_t tokens;
  const double* losses; /* one that is not finite says so */
  size_t losses_count;
  double norm;
  int32_t has_loss;
  double loss;
  uint32_t batches;
  int32_t answered;            /* ATOLL_WHOLE, ATOLL_BEGUN, ATOLL_ENDED or ATOLL_SAVED */
  const char* error;           /* NULL: it was done */
  const atoll_metric* metrics; /* with ATOLL_REPORT and ATOLL_EVALUATE: at most 32 */
  size_t metrics_count;
  const char* enough; /* with any order: the model is good enough, and why; the run ends for all islands after the next round. NULL: no */
} atoll_answer;

/* Connects to the agent (path NULL: $ATOLL_ISLAND_LINK), says hello for `ranks` processes, and waits for the run's settings.
 * NULL on failure, with the reason in `why`. */
atoll_trainer* atoll_trainer_join(const char* path, const char* name, const char* version, uint32_t ranks, char* why, size_t why_size);
/* The run's settings, as `configure` of the protocol's page: one JSON object, good until the next call of this function. After atoll_trainer_declare() it has "arena" as well: the
 * path of the arena, for other processes of the trainer to map. Both texts live until atoll_trainer_leave(). */
const char* atoll_trainer_configuration(atoll_trainer* trainer);
/* "reading its data", for people, before it is ready. */
int atoll_trainer_prepare(atoll_trainer* trainer, const char* what);
/* Tells the parameters and waits for the arena. `description` of the model may be NULL; it must be the same on all islands. */
int atoll_trainer_declare(atoll_trainer* trainer, const atoll_parameter* parameters, size_t count, const char* description);
/* The arena, and where each parameter lies in it. */
float* atoll_trainer_arena(atoll_trainer* trainer);
const atoll_entry* atoll_trainer_entries(atoll_trainer* trainer, size_t* count);
/* It stands at the beginning, or where configuration.resume says. */
int atoll_trainer_ready(atoll_trainer* trainer, uint64_t tokens_available);
/* The next order, waiting up to timeout_ms for one (-1: for ever). The one before must have been answered. While an order that was begun has
 * not ended, this does not wait: ATOLL_NONE says that nothing can be done before the oldest of them has. A SAVE that was begun stops nothing
 * but the next SAVE: ask with a timeout, and answer ATOLL_SAVED soon after it is written. */
int atoll_trainer_next(atoll_trainer* trainer, int timeout_ms, atoll_order* order);
/* The order is done; or it has begun; or the oldest that had begun has ended. Each is answered once, or begins once and ends once. */
int atoll_trainer_answer(atoll_trainer* trainer, const atoll_answer* answer);
/* How the run has ended, once ATOLL_STOP came: one of ATOLL_LEFT, ATOLL_COMPLETE and ATOLL_COMPLETE_FIRST. */
int atoll_trainer_end(atoll_trainer* trainer);
/* The trainer is about to exit, and why; permanent: it would fail again, so it is not started again. */
int atoll_trainer_fail(atoll_trainer* trainer, const char* why, int permanent);
/* Why the last call failed; never NULL. */
const char* atoll_trainer_why(atoll_trainer* trainer);
/* Disconnects and frees everything. */
void atoll_trainer_leave(atoll_trainer* trainer);

#ifdef __cplusplus
}
#endif

#endif
