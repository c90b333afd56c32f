#!/usr/bin/env bash
# Tables 1 to 3 and Figures 6 and 7 of ReasonRAG (arXiv 2505.14069): bash benchmarks/reasonrag_tables.sh table1 table2 table3 figures
#
# As it stands: two cores, a tiny model of random weights (`make train-env tiny-model`), the offline teacher; every number is then
# meaningless. On GPUs: the same script with the variables of benchmarks/reasonrag_tables.md. It stops at the first error, and the
# same command continues it; nothing that is paid for is asked twice.
set -euo pipefail

RUNS=${RUNS:-runs/tables}                # all that is made
TRAIN_SETS=${TRAIN_SETS:-atlas}          # questions to explore
SAMPLE=${SAMPLE:-20}                     # of each, drawn at random
TEST_SETS=${TEST_SETS:-atlas}            # questions to measure with
LIMIT=${LIMIT-2}                         # of each, the first ones; empty: all
TEACHER=${TEACHER:-offline}
MODEL=${MODEL:-models/tiny-qwen2}        # the untrained model: a folder
UNTRAINED=${UNTRAINED:---model $MODEL}   # how it is asked; on a server of its own: --model NAME --base-url ..
SEARCH_R1=${SEARCH_R1:-$UNTRAINED}       # how Search-R1's weights are asked; without them the untrained model by its protocol
SFT=${SFT:-smoke-cpu-sft}
DPO=${DPO:-smoke-cpu-dpo-full}
METHODS=${METHODS:-direct cot rag flare ircot iter-retgen adaptive-rag-prompted search-r1}
ARMS=${ARMS:-base sft outcome process sft-dpo}
STEPS=${STEPS:-9}                        # the budget of every method: 9 completions, 4 searches
RETRIEVAL=${RETRIEVAL-}                  # flags of generate and evaluate: --index ..
GENERATE=${GENERATE-}                    # more flags of generate: --max-cost ..
TRAIN=${TRAIN---set max_steps=2 --set max_samples=8 --set plot_loss=false}
EVALUATE=${EVALUATE---max-reply-tokens 16}
SEARCHES=${SEARCHES:-1 2 3 4 5}          # Figure 6: most searches of a question; N of them are 2N + 1 steps
TOP_K=${TOP_K:-1 3 5}                    # Figure 7: passages per search; 3 everywhere else

here=$(dirname "$0")
# what --as-published does for the arm `process`: a margin of .01 and no other filter, so that only labels differ
UNFILTERED="--min-margin 0.01 --min-confidence 0 --max-similarity 1 --max-efficiency-only 1 --max-style-only 1"
UNFILTERED+=" --allow-malformed --allow-ungrounded --allow-repeated-query"
made="|"

once() { case $made in *"|$*|"*) ;; *) "$@"; made+="$*|" ;; esac }

table() { "${PYTHON:-python3}" "$here/reasonrag_tables.py" "$@"; }

pairs() {  # NAME FLAGS: a data set of the trees, which are explored first
    local each name=$1 sets=()
    for each in $TRAIN_SETS; do sets+=(--dataset "$each"); done
    reasonrag generate "${sets[@]}" --split train --sample "$SAMPLE" --recipe reasonrag --model "$TEACHER" \
        $RETRIEVAL $GENERATE --run "$RUNS/trees"
    reasonrag pairs "$RUNS/trees" --out "$RUNS/data/$name" "${@:2}"
}

process_pairs() { pairs process --as-published --format sft --format sft-chosen; }

evaluate() {  # ROW METHOD FLAGS: on every test set
    local each split
    for each in $TEST_SETS; do
        case $each in popqa | bamboogle) split=test ;; *) split=dev ;; esac
        reasonrag evaluate --dataset "$each" --split "$split" ${LIMIT:+--limit "$LIMIT"} --method "$2" \
            --max-steps "$STEPS" --allow max_steps $RETRIEVAL $EVALUATE "${@:3}" --run "$RUNS/evals/$1-$each"
    done
}

arm() {  # of Table 3: trained where it must be, then measured as an agent
    local process="$RUNS/data/process" out="$RUNS/saves/$1" from="--set model_name_or_path=$MODEL"
    case $1 in
        base) evaluate base agent $UNTRAINED; return ;;
        sft) reasonrag train "$SFT" --data "$process" --out "$out" $from $TRAIN \
            --set dataset=rag_proguide_sft_chosen ;;
        outcome)
            pairs outcome --label outcome $UNFILTERED
            reasonrag train "$DPO" --data "$RUNS/data/outcome" --out "$out" $from $TRAIN ;;
        process) reasonrag train "$DPO" --data "$process" --out "$out" $from $TRAIN ;;
        sft-dpo) reasonrag train "$DPO" --recipe sft-dpo --data "$process" --out "$out" $from $TRAIN ;;
        *) echo "there is no arm $1" >&2; exit 2 ;;
    esac
    evaluate "$1" agent --model "$out"
}

table1() { once process_pairs; table data "$RUNS/data/process"; }

table2() {
    local method
    for method in $METHODS; do
        case $method in search-r1) evaluate "$method" "$method" $SEARCH_R1 ;; *) evaluate "$method" "$method" $UNTRAINED ;; esac
    done
    once process_pairs
    once arm base
    once arm process
    table scores "$RUNS/evals" "$TEST_SETS" $METHODS base process
}

table3() {
    local each
    once process_pairs
    for each in $ARMS; do once arm "$each"; done
    for each in $TEST_SETS; do
        reasonrag compare $(printf "$RUNS/evals/%s-$each " $ARMS) --out "$RUNS/compare-$each"
    done
    table scores "$RUNS/evals" "$TEST_SETS" $ARMS
}

point() {  # MAX-STEPS TOP-K: evaluates the arm `process` with these, unless the tables have that; adds its row to `points`
    local row=process
    if [ "$1 $2" != "$STEPS 3" ]; then
        row="process-steps-$1-top-k-$2"
        others+=" $row"
        STEPS=$1 evaluate "$row" agent --model "$RUNS/saves/process" --top-k "$2" --allow top_k
    fi
    points+=" $row"
}

figures() {
    local each points others= searches
    once process_pairs
    once arm process
    points=
    for each in $SEARCHES; do point $((2 * each + 1)) 3; done
    searches=$points points=
    for each in $TOP_K; do point "$STEPS" "$each"; done
    for each in $TEST_SETS; do
        reasonrag compare $(printf "$RUNS/evals/%s-$each " process $others) --out "$RUNS/figures-$each"
    done
    table scores "$RUNS/evals" "$TEST_SETS" $searches
    table scores "$RUNS/evals" "$TEST_SETS" $points
}

for each in "${@:-none}"; do
    case $each in
        table1 | table2 | table3 | figures) ;;
        *) echo "usage: bash $0 table1|table2|table3|figures .." >&2; exit 2 ;;
    esac
done
for each in "$@"; do "$each"; done
