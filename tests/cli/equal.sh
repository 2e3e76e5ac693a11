#!/bin/sh
# equal.sh - checks that with fp32 on the wire, any number of stages and any schedule over TLS computes
# the same bits as one process.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 8 6
runs train run.yaml --out one
for schedule in fill-drain 1f1b 1f1b-window 1f1b-split; do
    for count in 2 4 8; do
        runs train run.yaml --out "$schedule-$count" --set stages.schedule=$schedule \
            --set stages.count=$count
        same_metrics one "$schedule-$count"
        same_weights one "$schedule-$count"
    done
done

# An uneven split and a window of two microbatches, with the Muon optimizer.
runs train run.yaml --out muon-one --set train.optimizer=muon
runs train run.yaml --out muon-cut --set train.optimizer=muon --set stages.count=3 \
    --set 'stages.split=[5,1,2]' --set stages.window=2
same_metrics muon-one muon-cut
same_weights muon-one muon-cut

# Token tables that are not trained, or no longer: no stage may include them in the gradient norm.
for still in anchor_learning_rate=0 anchor_steps=3; do
    anchors="--set model.anchors=true --set model.local_every=2 --set train.clip=0.1 --set train.$still"
    runs train run.yaml --out "$still-one" $anchors
    runs train run.yaml --out "$still-cut" $anchors --set stages.count=4
    same_metrics "$still-one" "$still-cut"
    same_weights "$still-one" "$still-cut"
done

# Groups of several microbatches, with every kind of parameter whose gradient a schedule may defer or not.
# Tables with fewer rows than the corpus has token ids.
many="--set stages.groups=3 --set model.value_tables=true --set model.anchors=true --set model.conv=2 --set model.local_every=2 \
    --set model.table_rows=64"
runs train run.yaml --out groups-one $many
for schedule in fill-drain 1f1b-split; do
    runs train run.yaml --out groups-$schedule $many --set stages.count=4 --set stages.schedule=$schedule
    same_metrics groups-one groups-$schedule
    same_weights groups-one groups-$schedule
done
# The parameters of a codec, too.
code="--set stages.groups=3 --set stages.count=4 --set link.codec.name=strait --set link.codec.variant=context"
runs train run.yaml --out codec-drain $code --set stages.schedule=fill-drain
runs train run.yaml --out codec-split $code --set stages.schedule=1f1b-split
same_metrics codec-drain codec-split
same_weights codec-drain codec-split
# Another number of groups is another order of the sum.
runs train run.yaml --out groups-other $many --set stages.groups=8
metrics_of groups-one >a.txt
metrics_of groups-other >b.txt
cmp -s a.txt b.txt && fail "stages.groups changes nothing"
wait_all_exited
