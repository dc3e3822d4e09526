# For `.`: what became of the tokens of a run by `atoll local` that has ended; $atoll is the program.
#
# tokens_of STATE RUN: prints the document of `atoll data`, from a coordinator that is started on the folder of `local` for that long. Nothing
# where the run has no such list: alone and in pairs each step counts.
tokens_of() {
  "$atoll" coordinator --state "$1/coordinator" --log-level error > /dev/null 2>&1 &
  counting=$!
  until "$atoll" data "$2" --state "$1/coordinator" --json 2> /dev/null; do
    [ $? = 3 ] || break # anything but a coordinator that is not there yet is an answer
    sleep 0.2
  done
  kill "$counting"
  wait "$counting" 2> /dev/null || true
}
# counted_tokens: of this document on stdin, COUNTED COMPUTED over all islands. Counted are those in the round of their time and in later ones.
counted_tokens() {
  awk 'BEGIN { RS = "[{},]" } { gsub(/[" ]/, ""); split($0, pair, ":") }
    pair[1] == "merged" || pair[1] == "late" { counted += pair[2] } pair[1] == "trained" { computed += pair[2] }
    END { print counted + 0, computed + 0 }'
}
