#!/bin/bash
# Ten random faults, one of each kind, against five machines that keep a model up, with clients that compare every word:
# the short run of tools/fault-storm.py. Ranks may take longer to come back than in the long run, since tests run beside
# each other.
# labels: once root waits
set -u
command -v python3 >/dev/null || { echo "skip: no python3"; exit 77; }
exec python3 "$SOURCE_DIR/tools/fault-storm.py" --faults 10 --seed 3 --pace 0.4 --within 120 --clock "$BUILD_DIR/tests/libwrong_clock.so" \
    --program "$LOCKSTEP" --logs "$BUILD_DIR/Testing/faults"
