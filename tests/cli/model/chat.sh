#!/bin/sh
# chat.sh - fine-tuning data: completions are trained on and prompts are not, no document sees another, any
# number of stages computes the same bits, and a bad line is named.
. "$(dirname "$0")/../lib.sh"

make_corpus
make_run short.yaml 4 8
sed "s/context: 16/context: 80/; s/batch_tokens: 128/batch_tokens: 320/" short.yaml >run.yaml # no document is cut off
cat >a.jsonl <<'END'
{"prompt": "the sea was calm", "completion": " and a small boat went slowly past"}
END
cat >b.jsonl <<'END'
{"messages": [{"role": "user", "content": "where?"}, {"role": "assistant", "content": "past rocks"}]}

{"prompt": "", "completion": "birds sang of storms long gone while men drew their nets full silver fish in morning light"}
END
cat a.jsonl b.jsonl >both.jsonl
for name in a b both; do
    runs tokenize --tokenizer tokenizer.json --format chat --out $name.bin $name.jsonl
done
says "$ERR" 'both.bin: [0-9]+ tokens of 3 documents' '[0-9]+ of the tokens are trained on'
runs inspect --verify both.bin
says "$OUT" '3 documents'

chat="--set data.train=both.bin --set data.valid=both.bin --set data.valid_tokens=0"
runs train run.yaml --out one $chat
says "$ERR" 'training data: 3 documents, one each in 3 sequences; they fill [0-9]+% of the positions, 0 are cut off'
for more in 'two --set stages.count=2' 'four --set stages.count=4 --set stages.schedule=1f1b' \
    'threads --set device.threads=2' 'shared --set stages.count=2 --set stages.replicas=[1,2]'; do
    folder=${more%% *}
    runs train run.yaml --out $more $chat
    same_metrics one "$folder"
    same_weights one "$folder"
done
cp -r one resumed
rm -rf resumed/checkpoints/00000008
runs train run.yaml --out resumed --resume $chat
same_weights one resumed

# The loss is the mean over the targets of all documents: each document's is the same alone as beside others.
loss() {
    runs eval one ${2:-} --data "$1"
    sed -n 's/.*loss[ =:]*\([0-9.]*\).*/\1/p' "$OUT" "$ERR" | head -n 1
}
targets() { # the last run ends with the end-of-text token, which is trained on, too
    runs tokenize --force --tokenizer tokenizer.json --format chat --out n.bin "$1"
    sed -n 's/^\([0-9]*\) of the tokens.*/\1/p' "$ERR"
}
awk -v a="$(loss a.bin)" -v b="$(loss b.bin)" -v c="$(loss both.bin)" 'BEGIN { print a, b, c }' >losses
echo "$(targets a.jsonl) $(targets b.jsonl)" >>losses
tr '\n' ' ' <losses | awk '{ if ($3 == "") exit 1; w = ($1 * $4 + $2 * $5) / ($4 + $5); d = w - $3; exit !(d < 2e-4 && d > -2e-4) }' ||
    fail "the losses of two files and of both do not fit: $(tr '\n' ' ' <losses)"

[ "$(loss both.bin)" = "$(loss both.bin --as-run)" ] || fail "eval and the trainer score documents differently"

# Shards end with a document.
yes "$(cat a.jsonl)" | head -n 50 >many.jsonl
runs tokenize --tokenizer tokenizer.json --format chat --shard-tokens 100 --out many.bin many.jsonl
runs train run.yaml --out many --set 'data.train=many-*.bin' --set data.valid= --set data.valid_tokens=0

bad() {
    printf '{"prompt": "a", "completion": "b"}\n%s\n' "$2" >bad.jsonl
    refuses 3 "bad.jsonl:2: $1" tokenize --tokenizer tokenizer.json --format chat --out bad.bin bad.jsonl
    [ ! -e bad.bin ] || fail "a refused file left a shard"
}
bad 'column [0-9]+: ' '{"prompt": "a"'
bad 'expected an object with "messages"' '{"text": "a"}'
bad '"completion" is empty' '{"prompt": "a", "completion": ""}'
bad 'message 1: "content" is not a text' '{"messages": [{"role": "user", "content": [1]}]}'
bad 'no message of the role "assistant"' '{"messages": []}'
refuses 2 'the template has .content. nowhere' tokenize --tokenizer tokenizer.json --format chat --template x \
    --out bad.bin a.jsonl
refuses 2 '--template is for --format chat' tokenize --tokenizer tokenizer.json --template x --out bad.bin a.jsonl
wait_all_exited
