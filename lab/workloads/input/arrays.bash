# SPDX-License-Identifier: Apache-2.0
# arrays.bash N: arrays, associative arrays and strings; prints a checksum.
declare -A table
list=()
for ((i = 0; i < $1; i++)); do
    word="w$((i * 7919 % 10007))"
    table[$word]+=",$i"
    list+=("${word/w/x}-$i")
done
sum=0
for word in "${!table[@]}"; do
    IFS=, read -ra parts <<<"${table[$word]}"
    sum=$((sum + ${#parts[@]} * ${#word}))
done
upper=("${list[@]^^}")
echo "${#list[@]} ${#table[@]} $sum ${upper[17]} ${#upper[*]}"
