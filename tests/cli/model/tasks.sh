#!/bin/sh
# tasks.sh - eval --tasks: the choice it takes is the one whose text has the smallest loss by eval --text; standard
# errors; long contexts; broken lines are refused with their number.
. "$(dirname "$0")/../lib.sh"

make_corpus
make_run run.yaml 2 60
runs train run.yaml --out one

# nats FILE: the sum of the losses of all tokens but the first.
nats() {
    runs eval one --text "$1" --json
    jq '.loss * .tokens' "$OUT"
}

# The reference: the loss of context and choice less that of the context, also per byte.
printf 'the sea was calm' >context.txt
base=$(nats context.txt)
: >scores
i=0
for choice in "and a small boat" "rocks" "xylophone" "of storms long gone while men drew"; do
    printf 'the sea was calm %s' "$choice" >both.txt
    both=$(nats both.txt)
    jq -n "{i: $i, sum: ($both - $base), each: (($both - $base) / (\"$choice\" | length))}" -c >>scores
    i=$((i + 1))
done
best=$(jq -s 'min_by(.sum).i' scores)
best_norm=$(jq -s 'min_by(.each).i' scores)
[ "$best" != "$best_norm" ] || fail "the two measures agree: the test compares nothing"

choices='"choices": ["and a small boat", "rocks", "xylophone", "of storms long gone while men drew"]'
for answer in 0 1 2 3; do
    printf '{"context": "the sea was calm", %s, "answer": %d, "id": 7}\n' "$choices" $answer >one.jsonl
    runs eval one --tasks one.jsonl --json
    [ "$(jq '.acc | floor' "$OUT")" = "$([ $answer = "$best" ] && echo 1 || echo 0)" ] || fail "answer $answer: acc"
    [ "$(jq '.acc_norm | floor' "$OUT")" = "$([ $answer = "$best_norm" ] && echo 1 || echo 0)" ] ||
        fail "answer $answer: acc_norm"
done

# Four questions, of which one is right: 0.25, and an error of sqrt(0.25 0.75 / 3). The delimiter may be given, the
# context may be empty or longer than the model's.
for answer in 0 1 2 3; do
    printf '{"context": "the sea was calm ", "delimiter": "", %s, "answer": %d}\n\n' "$choices" $answer
done >four.jsonl
runs eval one --tasks four.jsonl
says "$OUT" '^acc 0.2500 \+- 0.2500$' '^acc_norm 0.2500 \+- 0.2500$' '^questions 4$'
long=$(head -c 2000 text.txt | tr '\n' ' ')
printf '{"context": "", "choices": ["the sea", "xyz"], "answer": 0}\n{"context": "%s", "choices": ["%s", "xyz"], "answer": 1}\n' \
    "$long" "$long" >odd.jsonl
runs eval one --tasks odd.jsonl --json
says "$OUT" '"questions": 2'

broken() {
    printf '{"context": "a", "choices": ["b", "c"], "answer": 0}\n%s\n' "$2" >broken.jsonl
    refuses 3 "broken.jsonl: line 2: .*$1" eval one --tasks broken.jsonl
}
broken "column [0-9]*: .*expected" '{"context": "a", '
broken "expected an object" '[1]'
broken '"choices" is missing' '{"context": "a", "answer": 0}'
broken '"answer" is not an integer' '{"context": "a", "choices": ["b", "c"], "answer": "0"}'
broken "answer 2: expected 0 to 1" '{"context": "a", "choices": ["b", "c"], "answer": 2}'
broken "1 choices" '{"context": "a", "choices": ["b"], "answer": 0}'
broken "choice 1 is empty" '{"context": "a", "choices": ["b", ""], "answer": 0}'
broken "choice 1 is not a text" '{"context": "a", "choices": ["b", 3], "answer": 0}'
broken '"context" is missing' '{"choices": ["b", "c"], "answer": 0}'
: >none.jsonl
refuses 3 "no questions" eval one --tasks none.jsonl
refuses 3 "missing.jsonl" eval one --tasks missing.jsonl
refuses 2 "either --text" eval one --tasks odd.jsonl --data train.bin
