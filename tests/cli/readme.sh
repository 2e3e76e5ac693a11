#!/bin/sh
# readme.sh - runs the commands of README.md's quick start as they are printed, compressed runs included, with fewer steps;
# and those of docs/quick-start.md on a GPU where there is one. tests/net/readme-run.sh has the section on two machines.
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)

# What the text provides: two books, the examples, the program on the path.
make_corpus
mkdir -p user/home bin
head -n 200 text.txt >user/book.txt
tail -n 60 text.txt >user/held-out.txt
cp -r "$source/examples" user/
ln -s "$STRAIT" bin/strait
sed -i 's/^  steps: 100$/  steps: 4/; s/^  valid_every: 25/  valid_every: 2/' user/examples/tiny.yaml user/examples/pipeline.yaml

# types FILE SECTION: runs the commands of a section in the folder of the user; make builds the program, which is there.
types() {
    commands_of "$1" "$2" | grep -v '^make && export PATH=' | sed 's/--set train.steps=[0-9]*/--set train.steps=2/; s/127.0.0.1:7777/127.0.0.1:0/' >commands
    [ -s commands ] || fail "$1 has no commands in \"$2\""
    (cd user && exec env STRAIT_CLI="$SCRATCH" HOME="$SCRATCH/user/home" PATH="$SCRATCH/bin:$PATH" sh -ex ../commands) >"$OUT" 2>"$ERR" </dev/null ||
        fail "a command of \"$2\" in ${1##*/} failed"
}

types "$source/README.md" 'Quick start'
[ "$(grep -c '"loss"' user/runs/pipeline/metrics.jsonl)" -eq 4 ] || fail "the pipeline did not finish its steps"
# What the text says of these runs: bytes per token of the compressed ones, bf16's of the others.
bytes() { grep '"loss"' "user/runs/$1/metrics.jsonl" | tail -n 1 | sed 's/.*"forward_bytes_per_token":\([0-9.]*\).*/\1/'; }
for run in pipeline slow; do
    awk -v b="$(bytes $run)" 'BEGIN { exit !(b > 4 && b < 6.5) }' || fail "$run: $(bytes $run) bytes per token, the text says 5.3"
done
awk -v b="$(bytes plain)" 'BEGIN { exit !(b > 250 && b < 270) }' || fail "plain: $(bytes plain) bytes per token, the text says 256"
says user/runs/slow/report.html '<td>slow</td>' '<td>plain</td>'

# The run file that is printed is one that trains.
awk '/^## / { is = $0 == "## Quick start" } is && /^```yaml$/ { in_block = 1; next } /^```$/ { in_block = 0 } is && in_block' \
    "$source/README.md" >user/examples/printed.yaml
(cd user && strait train examples/printed.yaml --out printed --set train.steps=2) >"$OUT" 2>"$ERR" || fail "the printed run file does not train"

if strait doctor --device cuda >"$OUT" 2>&1; then
    # The same commands once more, on the GPU: the run files say so.
    rm -rf user/runs user/corpus
    for file in user/examples/tiny.yaml user/examples/pipeline.yaml; do echo 'device: {kind: cuda}' >>"$file"; done
    types "$source/README.md" 'Quick start'
    grep -q 'kind: "cuda"' user/runs/tiny/run.yaml || fail "README's runs were not on the GPU"
    awk -v b="$(bytes slow)" 'BEGIN { exit !(b > 4 && b < 6.5) }' || fail "slow, on the GPU: $(bytes slow) bytes per token, the text says 5.3"
    types "$source/docs/quick-start.md" 'One GPU'
    types "$source/docs/quick-start.md" 'Several GPUs in one machine'
    same_metrics user/runs/gpus user/runs/shared
else
    echo "note: no GPU: its quick starts were not typed" >&2
    # Still, every option they name exists.
    for section in 'One GPU' 'Several GPUs in one machine'; do
        commands_of "$source/docs/quick-start.md" "$section" | sed -n 's/device.kind=cuda/device.kind=cpu/; s/^strait train \(.*\)/\1/p' >commands
        [ -s commands ] || fail "docs/quick-start.md has no commands in \"$section\""
        while read -r line; do
            (cd user && eval "strait train ${line%--page*} --dry-run") >"$OUT" 2>"$ERR" </dev/null || fail "docs/quick-start.md: strait train $line"
        done <commands
    done
fi
