# SPDX-License-Identifier: Apache-2.0
# bash at work: arrays, strings, subshells, pipes, programs.
declare -A words
for i in {1..3000}; do
    words[key$((i % 700))]+="$i,"
done
total=0
for key in "${!words[@]}"; do
    total=$((total + ${#words[$key]}))
done
echo "characters $total"
echo "sorted $(for i in {1..500}; do echo $((i * 7919 % 1000)); done | sort -n | tr '\n' ' ' | cksum)"
echo "subshell $(text=$(printf 'x%.0s' {1..2000}); echo ${#text})"
read -r line && echo "input $line"
exit 5
