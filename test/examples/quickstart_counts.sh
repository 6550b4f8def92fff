#!/usr/bin/env bash
# Compares what the quickstart counts with what coreutils count.  Usage: quickstart_counts.sh PROGRAM [FILE...]
# Without files: the program's own default, the licence texts of Debian. Then small files that are easy to get wrong, and
# files that cannot be read. Prints what differs; exit status 0 if nothing does.
set -euo pipefail
export LC_ALL=C
program=$(realpath "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work  # where the program puts its logs
fail() {
  echo "quickstart_counts: $*" >&2
  exit 1
}

# "COUNT WORD" lines, the most frequent first, equal ones by word.
expected() {
  for file in "$@"; do
    tr -cs A-Za-z '\n' <"$file" | tr A-Z a-z
    echo  # a file's last word does not run into the next file
  done | { grep . || true; } | sort | uniq -c | awk '{print $1, $2}' | sort -k1,1nr -k2,2
}

# The "COUNT WORD" lines that a service printed.
counted() { # SERVICE OUTPUT
  awk -v service="service $1:" '
    index($0, "service ") == 1 { on = index($0, service) == 1 }
    on && NF == 2 && $1 ~ /^[0-9]+$/ && $2 ~ /^[a-z]+$/ { print $1, $2 }' "$2"
}

compare() { # NAME FILE...: all counts, of both services
  local name=$1
  shift
  "$program" --top 1000000000 "$@" >"$work/out" || fail "$name: exit status $?"
  expected "$@" >"$work/expected"
  for service in ample tight; do
    counted $service "$work/out" >"$work/counted"
    diff -u --label coreutils --label "$service" "$work/expected" "$work/counted" || fail "$name: counts differ"
  done
  grep -qx 'leaks: none' "$work/out" || fail "$name: no line says that nothing leaked"
}

# The files named, or the default ones: as the program runs without arguments, ten words each, and the story is told.
if [ $# -gt 0 ]; then
  files=("$@")
  "$program" "${files[@]}" >"$work/ten" || fail "exit status $?"
else
  mapfile -t files < <(find /usr/share/common-licenses -maxdepth 1 -type f | sort)
  "$program" >"$work/ten" || fail "exit status $?"
fi
expected "${files[@]}" | head -n 10 >"$work/expected" || true
for service in ample tight; do
  counted $service "$work/ten" | diff -u --label coreutils --label "$service" "$work/expected" - || fail "the ten differ"
done
bytes=$(cat "${files[@]}" | wc -c)
if [ "$bytes" -gt 100000 ]; then
  grep -q '^weir: out of memory: ' "$work/ten" || fail "the tight service never ran out of memory"
  grep -q 'refused by limit; chain: .*logging > statistics > limit(.*) > pool > .*async' "$work/ten" || fail "no report"
  grep -q 'pool .* reserved = .* allocated .* free + .* pending; largest free piece ' "$work/ten" || fail "no pool line"
fi
compare "the files" "${files[@]}"

# The page that it leaves where it is asked to has both services and, for a large text, the refused requests.
WEIR_REPORT=$work/memory.html "$program" "${files[@]}" >"$work/out" || fail "with WEIR_REPORT: exit status $?"
grep -qF "report: $work/memory.html" "$work/out" || fail "it does not say where the report is"
WEIR_REPORT=/nowhere/x.html "$program" "${files[@]}" >"$work/out" 2>&1 && fail "a report that cannot be written: exit status 0"
grep -q "service ample" "$work/out" || fail "what was counted is lost with a report that cannot be written"
for service in ample tight; do
  grep -q "\"tags\":\[[^]]*\"$service\"" "$work/memory.html" || fail "the page does not know $service"
done
[ "$bytes" -le 100000 ] || grep -q '"action":"out_of_memory"' "$work/memory.html" || fail "the page shows no refusal"

printf 'The the THE tHe a' >"$work/case"
printf "don't x9y_z  \n\n--a--" >"$work/marks"
printf 'caf\303\251 na\303\257ve\0nul\r\nline' >"$work/bytes"
: >"$work/empty"
printf '123 456\n' >"$work/no_words"
head -c 300000 /dev/zero | tr '\0' x >"$work/one_long_word"
{ for i in $(seq 20000); do printf 'a b c d e f g h i j '; done; } >"$work/dense"  # the most memory for a byte of text
compare "letter case, no newline at the end" "$work/case"
compare "marks and digits" "$work/marks"
compare "bytes beyond ASCII" "$work/bytes"
compare "an empty file" "$work/empty"
compare "no words" "$work/no_words"
compare "two files that would run together" "$work/case" "$work/marks"
compare "one word of 300000 letters" "$work/one_long_word"
compare "short words" "$work/dense"

unreadable() { # NAME PATTERN FILE...
  local name=$1 pattern=$2 status=0
  shift 2
  "$program" "$@" >"$work/out" 2>"$work/err" || status=$?
  [ $status = 2 ] || fail "$name: exit status $status, not 2"
  [ "$(wc -l <"$work/err")" = 1 ] || fail "$name: not one line: $(cat "$work/err")"
  grep -q "$pattern" "$work/err" || fail "$name: unclear: $(cat "$work/err")"
  [ ! -s "$work/out" ] || fail "$name: printed results"
}
unreadable "a missing file" "cannot read $work/none: No such file" "$work/case" "$work/none"
unreadable "a folder" "cannot read $work: Is a directory" "$work"
if [ "$(id -u)" != 0 ]; then
  chmod 0 "$work/marks"
  unreadable "a forbidden file" "cannot read $work/marks: Permission denied" "$work/marks"
fi
echo "quickstart_counts: all agree with coreutils"
