// What the module `atoll_trainer.so` offers to the executable that loads it.
//
// The executable links no LibTorch: `atoll trainer`, `atoll generate` and `atoll sample` load this module and call one of these. All take
// arguments as a program does (argv[0] is the command's name), print to stdout and stderr, and return the exit code. No
// exception leaves them. LibTorch and its BLAS read OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and OMP_WAIT_POLICY once, when the
// module is loaded; thread counts are set again by call, but OMP_WAIT_POLICY=passive has to be there before.
// Threads: one call at a time.
#pragma once

extern "C" {

// Why the module is not for this program or this LibTorch, for people: it is of another version of Atoll than `program`, or was made for
// another LibTorch than the one that was loaded with it. Null: it fits. Asked before anything else.
const char* atoll_trainer_misfit(const char* program);

// The trainer process of an island, until its agent says stop:
//   trainer [--link PATH]     without it the path is $ATOLL_ISLAND_LINK
// Exit codes: 0 stopped by the agent, 1 failed (why is on stderr and was told to the agent), 2 a bad option.
int atoll_trainer_main(int argc, const char* const* argv);

// What the trainer computes with, in two lines on stdout: a text for people ("LibTorch 2.13.0 (AVX512), MKL 2024.2"), then whether its
// LibTorch is one for GPUs (1 or 0) and how many GPUs it can use here. Exit codes: 0 ok, 70 LibTorch failed.
int atoll_trainer_facts_main(int argc, const char* const* argv);

// Writes text with an exported model to stdout:
//   generate --model FILE.safetensors --prompt TEXT --tokens N --temperature T --top-k K --seed S --device D [--json]
// Every option but --json is given. The text, prompt included, goes to stdout as bytes as it is made; with --json it is
// one object {"schema": 1, "text": …, "tokens": N, "tokens_per_second": X} at the end. Exit codes: 0 ok, 2 a bad option, 4 no such file, 70
// a file that is no model of ours. A model of ours says what it is in the file's metadata: `atoll.model`, JSON of the [model] table with
// every key; if they are there, `atoll.format` (bytes, uint16 or uint32, `atoll.data_format` in a checkpoint; without it a vocabulary of at
// most 256 means bytes; otherwise prompt and text are token numbers with spaces between them) and `atoll.sequence_length`, the context it
// was trained with (128 without it). Further tensors are ignored.
int atoll_generate_main(int argc, const char* const* argv);

// Writes images of an ensemble as one PNG:
//   sample --folder DIR --output FILE.png --count N --router CHOICE --steps N --solver euler|heun --seed S --class C --guidance G --columns
//   N --threads N
//          --device D [--allow-missing] [--json]
// Every option with a value is given; --class may be empty. The digests of the files have been checked. Exit codes: 0 ok, 1 a file that is
// broken or cannot be written, 2 a bad option, 4 no such file, 8 files of different runs, 70 LibTorch failed.
int atoll_sample_main(int argc, const char* const* argv);

// For each line on stdin tokens/s of so many steps of the trainer's loop on stdout; tests/bench/trainer_bench.py has it take turns with
// PyTorch:
//   bench_trainer [--steps N] [--threads N] [--layers N] [--width N] [--batch N] [--sequence-length N] [--device D]
// Exit codes: 0 ok, 2 a bad option, 70 LibTorch failed.
int atoll_trainer_bench_main(int argc, const char* const* argv);
}
