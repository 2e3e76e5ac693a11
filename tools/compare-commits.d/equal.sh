# equal.sh - compares what two run folders hold: losses as printed, tensors by their bytes.
#
# Functions that compare set "difference" to the first difference in words, empty if there is none.
# shellcheck shell=bash

# read_losses FOLDER: sets "losses" to one line per loss, and "steps" to the number of training steps.
read_losses() {
    local line step
    losses=() steps=0
    [ -f "$1/metrics.jsonl" ] || return 0
    while IFS= read -r line; do
        [[ $line =~ \"step\":\ ?([0-9]+) ]] || continue
        step=${BASH_REMATCH[1]}
        if [[ $line =~ \"(loss|valid_loss)\":\ ?([^,}]+) ]]; then
            losses+=("step $step: ${BASH_REMATCH[1]} ${BASH_REMATCH[2]}")
            [ "${BASH_REMATCH[1]}" != loss ] || steps=$((steps + 1))
        fi
    done <"$1/metrics.jsonl"
}

# compare_losses FOLDER FOLDER
compare_losses() {
    local first i
    read_losses "$1"
    first=("${losses[@]}")
    read_losses "$2"
    difference=
    for i in "${!first[@]}"; do
        [ "${first[i]}" != "${losses[i]:-}" ] || continue
        difference="${first[i]} against ${losses[i]:-nothing}"
        [ "${first[i]% *}" != "${losses[i]% *}" ] || difference="${first[i]} against ${losses[i]##* }"
        return 0
    done
    [ ${#first[@]} -gt 0 ] || difference="no losses"
    [ ${#first[@]} = ${#losses[@]} ] || difference="${#first[@]} losses against ${#losses[@]}"
}

# newest_checkpoint FOLDER: sets "files" to the safetensors files of its last checkpoint.
newest_checkpoint() {
    local path newest=
    files=()
    for path in "$1"/checkpoints/*/*.safetensors; do
        [ -f "$path" ] && newest=${path%/*} # folders are named by step, and the shell sorts them
    done
    [ -z "$newest" ] || files=("$newest"/*.safetensors)
}

# read_header FILE: sets "entries" to "FIRST END DTYPE SHAPE NAME" of each tensor, by place, and "data" to
# the offset of the data. A safetensors file is the length of its header in 8 bytes, the header in JSON,
# then the data. Fails unless the tensors cover all of the data: a header that is misread must not make
# files look equal.
read_header() {
    local length line total found=()
    length=$(od -An -tu8 -N8 "$1")
    data=$((8 + length))
    total=$(($(stat -c %s "$1") - data))
    while IFS= read -r line; do
        [[ $line =~ \"data_offsets\":\ ?\[\ ?([0-9]+),\ ?([0-9]+) ]] || continue
        line="${BASH_REMATCH[1]} ${BASH_REMATCH[2]} $line"
        [[ $line =~ ^([0-9]+\ [0-9]+).*\"([^\"]*)\":\ ?\{ ]] || continue
        local place=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]} dtype='?' shape='?'
        [[ ! $line =~ \"dtype\":\ ?\"([A-Z0-9_]+)\" ]] || dtype=${BASH_REMATCH[1]}
        [[ ! $line =~ \"shape\":\ ?\[([0-9, ]*)\] ]] || shape="[${BASH_REMATCH[1]// /}]"
        found+=("$place $dtype $shape $name")
        total=$((total + ${place% *} - ${place#* }))
    done < <(head -c "$data" "$1" | tail -c +9 | tr '}' '\n')
    [ $total = 0 ] || return 1
    mapfile -t entries < <(printf '%s\n' "${found[@]}" | sort -n)
}

# digest_files FILES...: one digest per file of its data and of the places, types and shapes of its tensors,
# but not of their names, sorted.
digest_files() {
    local file entry data entries
    for file in "$@"; do
        read_header "$file" || return 1
        {
            for entry in "${entries[@]}"; do echo "${entry% *}"; done
            tail -c +$((data + 1)) "$file"
        } | sha256sum
    done | sort
}

# digest_tensors FILES...: "DIGEST DTYPE SHAPE NAME" of each tensor, sorted: the same for every cut of the
# model into files and every order of tensors. It takes long, so its result is kept beside the files.
digest_tensors() {
    local kept=${1%/*}/digests
    [ -f "$kept" ] || list_tensors "$@" >"$kept" || { rm -f "$kept" && return 1; }
    cat "$kept"
}

list_tensors() {
    local file i first end dtype shape name data entries digests folder
    folder=$(mktemp -d "$out/tensors-XXXXXX")
    for file in "$@"; do
        read_header "$file" || return 1
        for i in "${!entries[@]}"; do
            read -r first end dtype shape name <<<"${entries[i]}"
            dd if="$file" of="$folder/$((1000000 + i))" bs=1M iflag=skip_bytes,count_bytes \
                skip=$((data + first)) count=$((end - first)) status=none
        done
        mapfile -t digests < <(cd "$folder" && sha256sum -- *)
        for i in "${!entries[@]}"; do
            read -r first end dtype shape name <<<"${entries[i]}"
            echo "${digests[i]%% *} $dtype $shape $name"
        done
        rm -f "$folder"/*
    done | sort
    rmdir "$folder"
}

# compare_weights FOLDER FOLDER: every tensor of the last checkpoints, of model, codecs and optimizer.
compare_weights() {
    local first_files files digests others tensor missing=0 named=''
    newest_checkpoint "$1"
    first_files=("${files[@]}")
    newest_checkpoint "$2"
    difference="no checkpoint"
    [ ${#first_files[@]} -gt 0 ] && [ ${#files[@]} -gt 0 ] || return 0

    # Mostly whole files are equal, which is seen quickly.
    difference="a checkpoint cannot be read"
    digests=$(digest_files "${first_files[@]}") && others=$(digest_files "${files[@]}") || return 0
    if [ "$digests" = "$others" ]; then
        difference=
        return 0
    fi
    digests=$(digest_tensors "${first_files[@]}") && others=$(digest_tensors "${files[@]}") || return 0
    local -A count=()
    local left=0
    while read -r tensor; do
        count[${tensor% *}]=$((${count[${tensor% *}]:-0} + 1))
        left=$((left + 1))
    done <<<"$others"
    while read -r tensor; do
        if [ "${count[${tensor% *}]:-0}" -gt 0 ]; then
            count[${tensor% *}]=$((${count[${tensor% *}]} - 1))
            left=$((left - 1))
        else
            missing=$((missing + 1))
            named=${named:-${tensor##* }}
        fi
    done <<<"$digests"
    difference=
    [ $((missing + left)) = 0 ] ||
        difference="tensors without an equal: $missing against $left${named:+, such as $named}"
}
