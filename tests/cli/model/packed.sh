#!/bin/sh
# packed.sh - several documents in a row of the context: the losses of one document per row, any number of stages, threads and
# replicas computes the same bits, and what would read across documents is refused.
. "$(dirname "$0")/../lib.sh"

make_corpus
make_run short.yaml 4 8
sed "s/context: 16/context: 80/" short.yaml >run.yaml
awk 'BEGIN {
    n = split("the sea was calm and a small boat went slowly past rocks where birds sang", word, " ")
    for (i = x = 1; i <= 14; i++) {
        line = ""
        for (k = 0; k < 1 + (i * 7) % 13; k++) {
            x = (x * 16807) % 2147483647
            line = line " " word[x % n + 1]
        }
        printf "{\"prompt\": \"%s then\", \"completion\": \"%s\"}\n", word[i], line
    }
}' >chat.jsonl
runs tokenize --tokenizer tokenizer.json --format chat --out chat.bin chat.jsonl
chat="--set data.train=chat.bin --set data.valid=chat.bin --set data.valid_tokens=0"

# A step that has all documents computes the same mean, however they are put into rows.
runs train run.yaml --out probe $chat --set data.pack=true --set train.steps=1 --set train.batch_tokens=80
rows=$(sed -n 's/.*14 documents, packed into \([0-9]*\) sequences.*/\1/p' "$ERR")
[ -n "$rows" ] && [ "$rows" -lt 10 ] || fail "14 documents are packed into '$rows' rows: $(cat "$ERR")"
runs train run.yaml --out apart $chat --set train.batch_tokens=$((14 * 80))
says "$ERR" 'data.pack fills more'
runs train run.yaml --out packed $chat --set data.pack=true --set train.batch_tokens=$((rows * 80))
for folder in apart packed; do # training and validation
    jq -r "select(.step != null) | .loss // empty, .valid_loss // empty" $folder/metrics.jsonl >$folder.losses
done
[ "$(wc -l <apart.losses)" -ge 9 ] || fail "there are no losses"
paste apart.losses packed.losses |
    awk '{ d = $1 - $2; if (d > 2e-5 || d < -2e-5) bad = 1 } END { exit bad }' ||
    fail "packed documents have other losses: $(paste apart.losses packed.losses | tr '\n' ';')"

packed="$chat --set data.pack=true --set train.batch_tokens=$((rows * 80))"
for more in 'two --set stages.count=2' 'four --set stages.count=4 --set stages.schedule=1f1b' \
    'split --set stages.count=2 --set stages.schedule=1f1b-split' 'again --set train.recompute=true' \
    'threads --set device.threads=2' 'shared --set stages.count=2 --set stages.replicas=[1,2]'; do
    folder=${more%% *}
    runs train run.yaml --out $more $packed
    same_metrics packed "$folder"
    same_weights packed "$folder"
done
cp -r packed resumed
rm -rf resumed/checkpoints/00000008
runs train run.yaml --out resumed --resume $packed
same_weights packed resumed

refuses 2 'data.pack: .*has no documents' train run.yaml --out no --set data.pack=true --set train.batch_tokens=160 \
    --set data.valid= --set data.valid_tokens=0
refuses 2 'data.pack: convolutions' train run.yaml --out no $packed --set model.conv=3
[ ! -e no ] || fail "a refused run left a folder"
wait_all_exited
