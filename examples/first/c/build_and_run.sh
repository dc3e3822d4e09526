#!/bin/sh
# Compiles train.c, if that is newer than the program, and becomes it. The agent says where the library is: $ATOLL_TRAINER_LIBRARY.
set -eu
cd "$(dirname "$0")"
if [ ! -e train ] || [ train.c -nt train ]; then
  cc=${CC:-cc}
  command -v "$cc" >/dev/null || { echo "there is no C compiler; install one (apt-get install gcc libc6-dev, dnf install gcc)" >&2; exit 1; }
  library=${ATOLL_TRAINER_LIBRARY:-}
  [ -e "$library" ] || { echo "libatoll_trainer.so is missing; install Atoll's wheel or tarball, or apt-get install libatoll-trainer" >&2; exit 1; }
  "$cc" -O2 train.c "$library" -Wl,-rpath,"$(dirname "$library")" -lm -o "train.$$"
  mv "train.$$" train   # another island may be compiling, too
fi
exec ./train
