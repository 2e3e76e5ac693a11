#!/bin/sh
# broken.sh - checks that every user error is refused with one line that names the cause and the fix and
# with the right exit code, and that no file is overwritten.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml
runs train run.yaml --out good
cp run.yaml base.yaml
before=$(sum_of good)

# rejects_run_file TEXT LINE...: checks that a run file with these lines added is refused with TEXT.
rejects_run_file() {
    text=$1
    shift
    { cat base.yaml && printf '%s\n' "$@"; } >wrong.yaml
    refuses 2 "$text" train wrong.yaml --out fresh
    [ ! -e fresh ] || fail "a refused run left a folder"
}

# The command line.
refuses 2 'unknown command "trian"; did you mean train\? "strait help"' trian run.yaml
refuses 2 'unknown command "zzz"; "strait help"' zzz
refuses 2 'train: unknown flag --outt; did you mean --out\?' train run.yaml --outt x
refuses 2 'train: unknown flag --elsewhere; "strait help train"' train run.yaml --elsewhere
refuses 2 'unknown flag -x' train run.yaml -x
refuses 2 '--out needs a value' train run.yaml --out
refuses 2 '--resume takes no value' train run.yaml --resume=yes
refuses 2 'train: unknown flag --steps; did you mean --set train.steps=VALUE\?' train run.yaml --steps 5
refuses 2 'eval: unknown flag --steps; "strait help eval"' eval good --steps 5
refuses 2 '--out: the value is empty, expected DIR' train run.yaml --out ''
refuses 2 'train needs one run file: strait train RUN.yaml' train
refuses 2 'train needs one run file, but also got "train.steps=5"; --set KEY=VALUE' train run.yaml train.steps=5
refuses 2 'train needs one run file, but its name is empty' train ''
refuses 2 'generate needs one run or checkpoint folder, but also got "the sea"; .*--prompt' generate good 'the sea'
refuses 2 'eval needs one run or checkpoint folder, but also got "text.txt"; .*--text' eval good text.txt
refuses 2 'join needs one invite, the line that "strait host" printed: strait join \[INVITE' join
refuses 2 'help needs one command, but also got "eval"' help train eval
refuses 3 'run.yaml: not a folder; name the folder of a run or of a checkpoint' generate run.yaml
refuses 3 '--out nowhere/x.bin: folder nowhere does not exist' tokenize --tokenizer tokenizer.json --out nowhere/x.bin \
    text.txt
refuses 2 '--tokens: "many" is not a whole number' generate good --tokens many
refuses 2 '--temperature: "warm" is not a number' generate good --temperature warm
refuses 2 'either --text FILE or --data' eval good
printf a >a.txt
refuses 3 'a.txt: has 1 tokens; scoring needs at least 2' eval good --text a.txt
refuses 2 '--gflops: "nan" is not a number' plan run.yaml --gflops nan
refuses 2 'model.vocab is not set, .*: data.train is not set' plan run.yaml --set data.train=
refuses 2 '--gflops 0: expected above 0' plan run.yaml --gflops 0
refuses 2 '--lease: "inf" is not a number' host run.yaml --out fresh --lease inf
refuses 2 '--store-ca is for --store etcd:' host run.yaml --out fresh --store-ca a.txt
refuses 3 '--store-ca nothere.pem: not a readable file' host run.yaml --out fresh \
    --store etcd:https://127.0.0.1:1 --store-ca nothere.pem
refuses 3 'no run has written here' watch . --once
refuses 3 'nothere: no such folder' watch nothere --once
refuses 2 '--uses -1' host run.yaml --out fresh --uses -1
refuses 2 'host: --recut is now called --rebalance' host run.yaml --out fresh --recut 5
refuses 2 'host: --lose is now called --max-lost-work' host run.yaml --out fresh --lose 5
refuses 2 '--lease 0' host run.yaml --out fresh --lease 0
refuses 2 'tokenizer decode: no ids' tokenizer decode --tokenizer tokenizer.json
refuses 2 '--vocab N is missing' tokenizer train --out x.json text.txt
refuses 3 '--out nowhere/x.json: folder nowhere does not exist' tokenizer train --vocab 300 \
    --out nowhere/x.json text.txt
refuses 3 '--out good: is a folder; name a file in it' tokenizer train --vocab 300 --force --out good text.txt
! grep -q learning "$ERR" || fail "training started before the output path was checked"
refuses 3 '--out nowhere/x.json: folder nowhere does not exist' trace run.yaml --out nowhere/x.json
mkfifo pipe
refuses 3 '--plot pipe: is not a regular file' compare good --plot pipe
[ -p pipe ] || fail "a pipe was replaced by a file"
cp tokenizer.json read.json
refuses 2 'read.bin would overwrite read.json, which is an input' tokenize --force \
    --tokenizer read.json --out read.bin text.txt
cmp -s tokenizer.json read.json || fail "a tokenizer was replaced by a manifest"
refuses 2 '--out text.txt is one of the texts' tokenizer train --vocab 300 --force --out text.txt text.txt
refuses 3 'tokenizer.json: line 1, column ' tokenize --tokenizer tokenizer.json --out x.bin \
    --field body tokenizer.json
refuses 2 '--threads 4294967297: expected 1 to 256' generate good --threads 4294967297
refuses 2 "codec strait: there is no variant 'contxt'; the default is 'context'" train run.yaml \
    --out fresh --set link.codec.name=strait --set link.codec.variant=contxt
refuses 3 '--plot /nowhere/x.svg: folder /nowhere does not exist' compare good --plot /nowhere/x.svg
[ ! -s "$OUT" ] || fail "runs were compared before the output path was checked"
refuses 2 'meter: good was trained without a meter; set link.meter.rate' compare good --plot x.svg \
    --against meter
[ ! -e x.svg ] || fail "a plot without data was written"
refuses 5 'not enough memory: ids' generate good --tokens 99999999999999
refuses 2 'unknown command "hlep"; did you mean help\?' hlep
refuses 2 'unknown command "trian"; did you mean train\?' help trian
refuses 2 'bench: expected step, kernels or codec, not "walk"$' bench walk run.yaml
refuses 2 'bench: expected step, kernels or codec; "strait help bench"' bench
refuses 2 'bench step needs one run file: strait bench step RUN.yaml' bench step
refuses 2 'tokenizer: .* or info, not "trian"; did you mean train\?' tokenizer trian
refuses 2 'version takes no arguments, but got "now"$' version now
refuses 2 'relay takes no arguments, but got "now"$' relay now
refuses 2 'takes no arguments, but got "b.json"$' tokenizer info tokenizer.json b.json
refuses 2 'no section or key "modle"; did you mean model\?' options modle
refuses 2 'no section or key "steps"; did you mean train.steps\?' options steps
refuses 2 'no section or key "zzz"; "strait options" lists all' options zzz
refuses 2 'inspect needs' inspect
refuses 2 'started by "strait train"' stage now
refuses 2 '--tokenizer FILE is missing' tokenize --out x.bin text.txt
refuses 2 'train.bin already exists: .*--force' tokenize --tokenizer tokenizer.json --out train.bin \
    text.txt

# The run file: errors name line and column, the mistake, and a suggestion.
refuses 2 'nowhere.yaml: no such run file' train nowhere.yaml
refuses 2 'nowhere: no such folder of a run or run file' train --resume nowhere
refuses 2 'train.bin: not valid YAML: byte 0' train train.bin --out fresh
refuses 2 'good: is a folder; name a file' plan good
rejects_run_file 'wrong.yaml:7:[0-9]+: .*modle' 'modle: {width: 3}'
rejects_run_file 'wrong.yaml:[0-9]+:[0-9]+: .*model' 'model: {width: 64}'
printf 'model: {width: 32, widht: 3}\n' >wrong.yaml
refuses 2 'wrong.yaml:1:20: .*widht' train wrong.yaml --out fresh
printf 'model:\n  width: 32\n  width: 48\n' >wrong.yaml
refuses 2 'wrong.yaml:3:3: .*width' train wrong.yaml --out fresh
printf 'model: {layers: two}\n' >wrong.yaml
refuses 2 'wrong.yaml:1:17: .*model.layers' train wrong.yaml --out fresh
printf 'train: {learning_rate: [1, 2]}\n' >wrong.yaml
refuses 2 'wrong.yaml:1:24: .*train.learning_rate' train wrong.yaml --out fresh
printf 'train: {steps: -5}\n' >wrong.yaml
refuses 2 'wrong.yaml:1:16: .*train.steps' train wrong.yaml --out fresh
printf 'train: {optimizer: adam}\n' >wrong.yaml
refuses 2 'wrong.yaml:1:20: .*adamw' train wrong.yaml --out fresh
printf 'train: {steps: 5\n' >wrong.yaml
refuses 2 'wrong.yaml:' train wrong.yaml --out fresh
refuses 2 '--set train.stpes=3: unknown key' train run.yaml --out fresh --set train.stpes=3
refuses 2 '--set train.steps=soon: ' train run.yaml --out fresh --set train.steps=soon
refuses 2 'train.steps' train run.yaml --out fresh --set train.steps
refuses 2 'not a multiple of model.context 16; try 112' train run.yaml --out fresh \
    --set train.batch_tokens=100
refuses 2 'stages.count \(3\) is more than model.layers' train run.yaml --out fresh \
    --set stages.count=3
# Keys that do not fit together are blamed on the option that was given, not on the file, which is right.
for command in train plan host trace; do
    refuses 2 '--set model.heads=3: model.heads: 3 does not divide' $command run.yaml --set train.seed=2 \
        --set model.heads=3
done
sed 's/batch_tokens: 128/batch_tokens: 7/' run.yaml >wrong.yaml
refuses 2 'wrong.yaml: train.batch_tokens: ' train wrong.yaml --out fresh --set train.seed=2
refuses 2 'model.tied needs stages.count 1' train run.yaml --out fresh --set stages.count=2 \
    --set model.tied=true
refuses 2 'split' train run.yaml --out fresh --set stages.count=2 --set 'stages.split=[2,1]'
refuses 2 'fp8 needs a GPU of sm_90 or later' train run.yaml --dry-run --set device.precision=fp8
refuses 2 'fp8 needs a GPU of sm_90 or later' train run.yaml --out fp8 --set device.precision=fp8
refuses 2 'abacus.*expected cpu or cuda' train run.yaml --dry-run --set device.kind=abacus
refuses 2 '--device: "gpu" is not a device kind; expected cpu or cuda \(or auto' generate good --device gpu
refuses 2 '--device: "abacus" is not a device kind; expected cpu or cuda \(or auto' join strait1:AQ --device abacus
refuses 2 'codec .morse.*choose one of none, .*, or auto' train run.yaml --dry-run --set link.codec.name=morse
refuses 2 'morse' train run.yaml --out fresh --set stages.count=2 --set link.codec.name=morse
refuses 2 'variant "code" of subspace needs a model' train run.yaml --out fresh \
    --set stages.count=2 --set link.codec.name=subspace --set link.codec.keep=8 \
    --set link.codec.variant=code

# The output folder.
refuses 2 'good already contains a run: .*--resume' train run.yaml --out good
refuses 2 'good already contains a run: .*--force does not replace a run' train run.yaml --out good --force
for how in '' --dry-run; do refuses 2 'text.txt is a file: --out DIR' train run.yaml --out text.txt $how; done
begin train run.yaml --out busy --set train.steps=100000 --set train.save_every=0
wait_lines busy 3
ERR=$SCRATCH/second refuses 3 'busy/.lock: another process' train run.yaml --out busy --resume
kill -9 "$STARTED"
reap

# Neither train nor host overwrites files that do not belong to a run, or adds its own to them.
for name in run.yaml tokenizer.json; do
    for flags in 'train --out theirs' 'train --resume --out theirs' 'host --keys keys --out theirs'; do
        mkdir theirs
        echo mine >theirs/$name
        refuses 2 "theirs/$name would be overwritten, but no run wrote it" $flags run.yaml
        [ "$(ls -A theirs) $(cat theirs/*)" = "$name mine" ] || fail "$flags left $(ls -A theirs)"
        rm -r theirs
    done
done
mkdir theirs
refuses 3 'nothere.bin' train run.yaml --out theirs --set data.train=nothere.bin
rmdir theirs || fail "a refused run left $(ls -A theirs)"

# A host that is refused, for bad data, a run of "train" or a port in use, leaves no file and no folder.
refuses 3 'data.train: .*nothere.bin' host run.yaml --keys keys --out none --set data.train=nothere.bin
[ ! -e none ] || fail "a refused host left $(ls -A none)"
files=$(ls -A good)
refuses 2 'good already contains a run' host run.yaml --keys keys --out good
[ "$files" = "$(ls -A good)" ] || fail "a refused host left $(ls -A good)"
begin relay --listen 127.0.0.1:0
await "the relay prints its address" grep -qhE '127\.0\.0\.1:[0-9]+' "$OUT" "$ERR"
port=$(grep -ohE '127\.0\.0\.1:[0-9]+' "$OUT" "$ERR" | head -n 1)
mkdir empty
for folder in none empty; do
    ERR=$SCRATCH/second OUT=$SCRATCH/second.out refuses 2 "cannot listen at $port: address already in use" \
        host run.yaml --keys keys --out $folder --listen "$port"
done
[ ! -e none ] || fail "a refused host left $(ls -A none)"
rmdir empty || fail "a refused host left $(ls -A empty)"
refuses 3 "--keys DIR: cannot create the folder of keys .*run.yaml: not a folder" host run.yaml --keys run.yaml --out none
refuses 2 "--relay: .*'nonsense': expected HOST:PORT" host run.yaml --keys keys --out none --relay nonsense
refuses 2 "--announce: .*'a b': expected HOST or HOST:PORT" host run.yaml --keys keys --out none \
    --announce '10.0.0.1:7,a b'
refuses 2 "--announce: .*'10.0.0.1:port': expected HOST or" join strait1:AQ --announce 10.0.0.1:port
refuses 2 "address 'nonsense': expected host:port" host run.yaml --keys keys --out none --listen nonsense
[ ! -e none ] || fail "a refused host left $(ls -A none)"
kill -9 "$STARTED"
reap

# Memory: a model with 2 TB of weights.
huge='--set model.width=16384 --set model.heads=64 --set model.ffn=65536 --set model.layers=128'
refuses 5 'the run needs .* TiB of memory' train run.yaml --out fresh $huge
refuses 5 'not enough memory.*train.recompute.* [0-9]{12,} bytes' train run.yaml --out fresh $huge --force
refuses 5 'not enough memory' train run.yaml --out fresh $huge --set stages.count=2 --force
wait_all_exited

# The data.
refuses 3 'data.train: .*nothere.bin' train run.yaml --out fresh --set data.train=nothere.bin
refuses 3 'data.valid: .*nothere.bin' train run.yaml --out fresh --set data.valid=nothere.bin
refuses 3 'data.tokenizer: .*nothere.json' train run.yaml --out fresh --set data.tokenizer=nothere.json
mkdir bad
head -c 5000 train.bin >bad/short.bin
refuses 3 'bad/short.bin: truncated.*8506 tokens, the file has 1988' train run.yaml --out fresh --set data.train=bad/short.bin
cp text.txt bad/foreign.bin
refuses 3 'bad/foreign.bin' train run.yaml --out fresh --set data.train=bad/foreign.bin
: >bad/empty.bin
refuses 3 'bad/empty.bin: is empty' train run.yaml --out fresh --set data.train=bad/empty.bin
cp train.bin train.json bad/
printf 'x' | dd of=bad/train.bin bs=1 seek=3000 conv=notrunc 2>/dev/null
refuses 3 'bad/train.bin' inspect --verify bad/train.json
refuses 3 'bad/train.bin' inspect --verify bad/train.bin
# A changed id within the vocabulary shows only by the hash of the manifest.
mkdir quiet
cp train.bin train.json quiet/
printf '\005\000' | dd of=quiet/train.bin bs=1 seek=3000 conv=notrunc 2>/dev/null
refuses 3 'quiet/train.bin: damaged: its hash' inspect --verify quiet/train.bin
rm quiet/train.json
runs inspect --verify quiet/train.bin
says "$OUT" 'every id verified; no manifest beside it has its hash'
echo '{' >quiet/train.json
refuses 3 'quiet/train.json' inspect --verify quiet/train.bin
refuses 3 'beside .*quiet/train.bin cannot be used: .*quiet/train.json: line 2' train run.yaml --out fresh \
    --set data.train=quiet/train.bin
runs tokenizer train --vocab 280 --out other.json text.txt
refuses 3 'train.bin: tokenized for a vocabulary of 300, but .* 280' train run.yaml --out fresh \
    --set data.tokenizer=other.json
sed 's/sea/hills/g' text.txt >hills.txt
runs tokenizer train --vocab 300 --out hills.json hills.txt
refuses 3 'train.bin: .*tokenizer' train run.yaml --out fresh --set data.tokenizer=hills.json
refuses 3 'tokenizer' generate good --tokenizer other.json --prompt the
long='--set model.context=8192 --set train.batch_tokens=8192 --set data.valid_tokens=0'
head -c 2000 text.txt >little.txt
runs tokenize --tokenizer tokenizer.json --out little.bin little.txt
for command in 'train --dry-run' 'train --out fresh' 'host --out hosted'; do
    refuses 3 'little.bin: no shard holds 8193 tokens' $command run.yaml $long \
        --set data.train=little.bin
    refuses 3 'little.bin: no shard holds 8193 tokens' $command run.yaml $long \
        --set data.valid=little.bin
done
[ ! -e hosted ] || fail "a refused host left $(ls -A hosted)"
printf '{"model": 3}' >bad/tokenizer.json
refuses 3 'bad/tokenizer.json' inspect bad/tokenizer.json
refuses 3 'bad/tokenizer.json' tokenize --tokenizer bad/tokenizer.json --out bad/x.bin text.txt
refuses 3 'nothere.txt' tokenize --tokenizer tokenizer.json --out bad/x.bin nothere.txt
# Binary files are not accepted as text, compressed or not.
printf 'PK\003\004 and so on' >bad/novel.zip
tar cf bad/novel.tar text.txt
tar cf - text.txt | gzip >bad/novel.tar.gz
printf '7z\274\257\047\034 and so on' >bad/novel.7z
printf 'BZh91AY&SY and so on' >bad/novel.bz2
printf 'PAR1 and so on' >bad/novel.parquet
printf '%%PDF-1.7 and so on' >bad/novel.pdf
for kind in 'zip=a zip archive' '7z=a 7z archive' 'tar=a tar archive' 'tar.gz=a tar archive' \
    'bz2=bzip2 data' 'pdf=a PDF document'; do
    refuses 3 "novel.${kind%%=*}: this is ${kind#*=}; convert it to plain text" tokenize \
        --tokenizer tokenizer.json --out bad/x.bin "bad/novel.${kind%%=*}"
done
refuses 3 'this is binary data, not text .byte [0-9]+ is NUL.; convert it to text' tokenize \
    --tokenizer tokenizer.json --out bad/x.bin "$STRAIT"
refuses 3 'train.bin: this is a token shard, not text' tokenize --tokenizer tokenizer.json --out bad/x.bin train.bin
refuses 3 'train.bin: this is a token shard, not text; .*--data' eval good --text train.bin
refuses 3 "novel.parquet: this is a Parquet file; .*pandas.read_parquet.'bad/novel.parquet'." tokenize \
    --tokenizer tokenizer.json --out bad/x.bin bad/novel.parquet
refuses 3 'this is a tar archive' tokenizer train --vocab 300 --out bad/new.json bad/novel.tar.gz
[ ! -e bad/x.bin ] || fail "a refused command left a shard"

head -c 5000 tokenizer.json >bad/cut.json
refuses 3 'not a complete tokenizer.json: bad/cut.json: line' tokenizer info bad/cut.json
refuses 3 'nothere' inspect nothere
refuses 3 'bad: neither a run nor a checkpoint' inspect bad
refuses 2 'not a run or checkpoint folder' inspect text.txt

# Checkpoints.
refuses 3 'model.ffn 48.* 64' train run.yaml --out good --resume --set model.ffn=64
refuses 3 'nothere: no such folder' eval nothere --text text.txt
refuses 3 'nothere: no such folder' generate nothere
refuses 3 'bad: contains no checkpoint; name the folder of a run' generate bad
for file in stage-0.safetensors stage-0.state.safetensors manifest.json; do
    rm -rf bad/run
    cp -r good bad/run
    printf '\377\377' | dd of="bad/run/checkpoints/00000010/$file" bs=1 seek=40 conv=notrunc \
        2>/dev/null
    refuses 3 "00000010[:/].*$file" inspect bad/run/checkpoints/00000010
    refuses 3 "00000010[:/].*$file" inspect bad/run
    grep -q 'checkpoints: 8 10 (damaged)$' "$OUT" || fail "inspect does not say which checkpoint is damaged"
    # A damaged checkpoint is refused when it is opened by its path. When the run is opened, every command
    # uses the same older checkpoint and prints a note.
    refuses 3 "00000010[:/].*$file" generate bad/run/checkpoints/00000010 --prompt the
    damaged=$(sum_of bad/run/checkpoints/00000010)
    note="^note: using step 8, the newest undamaged checkpoint: bad/run/checkpoints/00000010[:/].*$file"
    runs generate good/checkpoints/00000008 --prompt the
    cp "$OUT" expected.txt
    runs generate bad/run --prompt the
    says "$ERR" "$note"
    cmp -s "$OUT" expected.txt || fail "generate does not use the checkpoint that its note names"
    runs eval bad/run --text text.txt --json
    says "$ERR" "$note"
    jq -e '.step == 8' "$OUT" >/dev/null || fail "eval does not print the step that it scored"
    [ "$damaged" = "$(sum_of bad/run/checkpoints/00000010)" ] || fail "a damaged file was changed"
    runs train run.yaml --out bad/run --resume
    says "$ERR" "$note" '^resuming after step 8$'
    same_weights good bad/run
    runs generate good --prompt the
    ! grep -q '^note:' "$ERR" || fail "a note was printed although no checkpoint is damaged"
done
for step in 00000008 00000010; do : >bad/run/checkpoints/$step/stage-0.safetensors; done
refuses 3 'every checkpoint of bad/run is damaged: .*00000010.*00000008' generate bad/run --prompt the
head -c 100 good/checkpoints/00000010/stage-0.safetensors >bad/cut.safetensors
refuses 3 'bad/cut.safetensors' inspect bad/cut.safetensors

[ ! -e fresh ] || fail "refused runs left $(find fresh)"
[ "$before" = "$(sum_of good)" ] || fail "the undamaged run was changed"
