#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests of the textbook allocators; called by `make test` with the absolute build folder.
# Each check prints one line; the last line is "textbook: N passed, N failed".
set -u

build=$1
lib=$build/lib/imas/allocators
study=$build/lib/imas/study
here=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$here")
work=$(mktemp -d)
trap 'rm -rf "$work" || echo "left: $work"' EXIT
policies='first next best worst'
CC=${CC:-gcc}
passed=0
failed=0
export LC_ALL=C.UTF-8

# check NAME COMMAND...: passes when the command succeeds; its output is shown when it does not.
check() {
  local name=$1
  shift
  if "$@" > "$work/check.log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name"
  else
    failed=$((failed + 1))
    echo "FAILED  $name"
    sed 's/^/        /' "$work/check.log"
  fi
}

same() { diff <(printf '%s\n' "$1") <(printf '%s\n' "$2"); }

so() { echo "$lib/libimas-fit-$1.so"; }

under() { # POLICY COMMAND...
  local policy=$1
  shift
  LD_PRELOAD=$(so "$policy") "$@"
}

# --- the block structure: invariant walked after every operation, sanitizers on

heap_test() { # HEADER MERGE GRANULE ORDER POLICY
  local binary=$work/heap_test
  "$CC" -std=gnu11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined \
    -fno-sanitize-recover=all -DIMAS_FIT_CHECK -DFIT_HEADER_BYTES="$1" -DFIT_MERGE="$2" \
    -DFIT_GRANULE_BYTES="$3" -DFIT_ADDRESS_ORDER="$4" -I"$source" "$here/heap_test.c" \
    "$source"/{block,check,fault,heap}.c "$source/policy_$5.c" -o "$binary" || return 1
  for seed in 1 2; do "$binary" "$seed" || return 1; done
}

for policy in $policies; do
  for header in 24 8; do
    for merge in 1 0; do
      check "heap: $policy, header $header, merge $merge, by address" \
        heap_test $header $merge 16 1 "$policy"
    done
  done
done
check "heap: first, header 24, granule 8, last freed first" heap_test 24 1 8 0 first
check "heap: first, header 8, granule 8, last freed first" heap_test 8 1 8 0 first
check "heap: first, header 24, granule 8, no merging, last freed first" heap_test 24 0 8 0 first

# --- the published runs, digit for digit, and the five programs that distinguish the policies

statistics() { # POLICY TEST [SEED]: the nine figures in the paper's order
  "$study/fit-driver" --preload "$(so "$1")" "$study/fit-test$2" "${3:-1}" |
    grep -E '^(mallocs|frees|reuses|grows|splits|coalesces|blocks|requested|max_heap),' |
    cut -d, -f2 | paste -sd ' '
}

figure() { # POLICY TEST KEY [SEED]
  "$study/fit-driver" --preload "$(so "$1")" "$study/fit-test$2" "${4:-1}" |
    sed -n "s/^$3,//p"
}

for policy in $policies; do
  check "fit: $policy, published run 1" \
    same "$(statistics "$policy" 1)" '2 1 0 2 0 0 2 66559 66560'
  check "fit: $policy, published run 2" \
    same "$(statistics "$policy" 2)" '1027 514 1 1026 1 2 1025 1180670 1115136'
  check "fit: $policy, published run 3" \
    same "$(statistics "$policy" 3)" '4 3 1 3 1 2 2 5472 3424'
done

# shellcheck disable=SC2069 # standard error alone is meant
statistics_text() { IMAS_FIT_STATS=1 under first "$study/fit-test3" 2>&1 > "$work/stdout"; }
check "fit: spelling and layout of the statistics" same "$(statistics_text | tail -n +2)" \
"heap management statistics
mallocs:      4
frees:        3
reuses:       1
grows:        3
splits:       1
coalesces:    2
blocks:       2
requested:    $((5472 - 1024 + 4096))
max heap:     $((3424 - 1024 + 4096))"
check "fit: statistics on request only" same "$(under first "$study/fit-test3" 2>&1)" \
  'Running test 3 to test coalesce'

check "fit: first fit by address" same "$(figure first 4 placement)" 412126
check "fit: next fit by address" same "$(figure next 4 placement)" 456661
check "fit: best fit by address" same "$(figure best 4 placement)" 435112
check "fit: worst fit by address" same "$(figure worst 4 placement)" 462610

rising() { # NAME=VALUE...: strictly
  local last=-1
  for pair in "$@"; do
    [ "${pair#*=}" -gt "$last" ] || { echo "not rising: $*"; return 1; }
    last=${pair#*=}
  done
}

apart() { # TEST KEY: best < first < next < worst in the sum over five seeds
  local pairs=() one
  for policy in best first next worst; do
    local sum=0
    for seed in 1 2 3 4 5; do
      one=$(figure $policy "$1" "$2" $seed)
      # Without a number bash would leave `check` too, which then counts nothing.
      [ -n "$one" ] || { echo "$policy, seed $seed: no $2"; return 1; }
      sum=$((sum + one))
    done
    pairs+=("$policy=$sum")
  done
  rising "${pairs[@]}"
}

fragmented() { # best and first fit stay close to each other; next and worst do not
  rising "first=$(figure first 5 fragmentation_ppm)" "next=$(figure next 5 fragmentation_ppm)" \
    "worst=$(figure worst 5 fragmentation_ppm)" &&
    rising "best=$(figure best 5 fragmentation_ppm)" "next=$(figure next 5 fragmentation_ppm)"
}

check "fit: fragmentation tells first and best from next from worst" fragmented
check "fit: heap growth tells all four apart" apart 6 growth_bytes
check "fit: max heap tells all four apart" apart 7 max_heap_bytes
for policy in $policies; do
  check "fit: $policy, timed load runs" test "$(figure "$policy" 8 ns_per_operation)" -gt 0
done

# --- misuse ends with one line and an abort

"$CC" -O1 -w -fno-builtin "$here/programs/misuse.c" -o "$work/misuse" || exit 1

misuse() { # POLICY CASE MESSAGE
  local text status
  text=$(under "$1" "$work/misuse" "$2" 2>&1)
  status=$?
  same "$text" "imas: textbook allocator aborts: $3" && [ $status -eq 134 ]
}

while read -r case message; do
  for policy in $policies; do
    check "misuse: $policy, $case" misuse "$policy" "$case" "$message"
  done
done << 'CASES'
double_free double free
double_free_of_merged double free
realloc_of_freed double free
usable_size_of_freed double free
foreign_stack pointer not from this heap
foreign_mapping pointer not from this heap
foreign_middle pointer not from this heap
foreign_odd pointer not from this heap
overflow block header overwritten
overflow_by_zeros block header overwritten
overflow_seen_by_victim block header overwritten
overflow_into_free block header overwritten
underflow block header overwritten
link_overwritten block header overwritten
CASES

# --- semantics, threads, fork, other users of the break

for program in semantics threads foreign_break trim ties; do
  "$CC" -O1 -w -fno-builtin -pthread "$here/programs/$program.c" -o "$work/$program" || exit 1
done
"$CC" -O1 -w -shared -fPIC "$here/programs/early_fork.c" -o "$work/libearly_fork.so" || exit 1
"$work/semantics" > "$work/semantics.glibc"

early_fork() {
  LD_PRELOAD="$(so "$1") $work/libearly_fork.so" timeout 60 "$work/threads"
}

for policy in $policies; do
  check "semantics: $policy as glibc" \
    diff "$work/semantics.glibc" <(under "$policy" "$work/semantics")
  check "threads and forks: $policy" same "$(under "$policy" timeout 60 "$work/threads")" 'done'
  check "fork handlers that allocate: $policy" same "$(early_fork "$policy")" 'done'
  check "another user of the break: $policy" same "$(under "$policy" "$work/foreign_break")" 'done'
  check "first among equals: $policy" same "$(under "$policy" "$work/ties")" 1
  check "malloc_trim: $policy" same "$(under "$policy" "$work/trim")" 'done'
done

# --- real programs: the same output as without

cat > "$work/program.py" << 'PYTHON'
import collections, hashlib, json, random, re, threading
random.seed(1)
words = [''.join(random.choices('abcdef', k=random.randint(1, 12))) for _ in range(8000)]
text = json.dumps(collections.Counter(words).most_common())
threads = [threading.Thread(target=lambda: sorted(words)) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(hashlib.sha256(re.sub('a+b', 'x', text).encode()).hexdigest())
PYTHON
cat > "$work/program.sql" << 'SQL'
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, hex(i * 7919) || printf('%0200d', i) from n;
create index tb on t(b);
select count(*), sum(length(b)), max(b) from t where b > '5';
delete from t where a % 3 = 0;
vacuum;
select count(*), min(b), max(b) from t;
SQL
cat > "$work/program.sh" << 'BASH'
declare -A table
for i in {1..1000}; do table[key$i]=$((i * i)); done
total=0
for value in "${table[@]}"; do total=$((total + value)); done
echo "$total" $(printf '%s\n' "${!table[@]}" | sort | sha256sum) $(for i in {1..50}; do (echo $i); done | wc -l)
BASH
git_log() {
  rm -rf "$work/repository"
  git init -q "$work/repository" && cd "$work/repository" || return 1
  for i in {1..20}; do
    seq $i $((i * 500)) > "file$i"
    git add . && git -c user.name=t -c user.email=t@t -c commit.gpgsign=false \
      commit -q -m "commit $i" --date '2020-01-01 00:00:00 +0000' || return 1
  done
  git gc -q && git fsck --full && git log --format=%T --stat | sha256sum
}
real() { # bash, python3, sqlite3 or git, in the environment of the caller
  case $1 in
    bash) bash "$work/program.sh" ;;
    python3) PYTHONMALLOC=malloc python3 "$work/program.py" ;;
    sqlite3) sqlite3 < "$work/program.sql" ;;
    git) (git_log) ;;
  esac
}
preloaded() (
  export LD_PRELOAD
  LD_PRELOAD=$(so "$1")
  real "$2"
)

for program in bash python3 sqlite3 git; do
  command -v $program > "$work/which" || { echo "SKIPPED: $program: not installed"; continue; }
  expected=$(real $program 2>&1)
  for policy in $policies; do
    check "$program under $policy" same "$(preloaded "$policy" $program 2>&1)" "$expected"
  done
done

# --- the libraries themselves

exports() { nm -D --defined-only "$1" | awk '{print $3}' | sort; }
expected_exports() { grep -oE '[a-z_0-9]+;' "$source/../../allocators/glue/exports.map" | tr -d ';' | sort; }
undefined() { nm -D --undefined-only "$1" | awk '{print $2}' | sed 's/@.*//' | sort; }
has() { grep -q -- "$2" <<< "$1" || { echo "missing: $2"; return 1; }; }

for policy in $policies; do
  file=$(so "$policy")
  dynamic=$(readelf -dW "$file")
  segments=$(readelf -lW "$file")
  check "$policy: exports the family and no more" diff <(expected_exports) <(exports "$file")
  check "$policy: asks libc for nothing new" diff <(sort "$here/undefined.txt") <(undefined "$file")
  check "$policy: needs libc only" \
    same "$(grep -c NEEDED <<< "$dynamic") $(grep -c 'libc.so.6' <<< "$dynamic")" '1 1'
  # Of fork_order.h: which of the handlers this thread's fork has run, and the signals it had blocked before.
  check "$policy: no thread-local storage but twelve bytes" has "$segments" ' TLS .* 0x00000c R '
  check "$policy: bound at start" has "$dynamic" BIND_NOW
  check "$policy: relocations read-only" has "$segments" GNU_RELRO
  check "$policy: stack not executable" has "$segments" 'GNU_STACK.* RW '
  check "$policy: name and version" grep -qa "fit-$policy 1" "$file"
done

echo "textbook: $passed passed, $failed failed"
[ $failed -eq 0 ]
