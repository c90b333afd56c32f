"""The public calls with their settings, for editors and type checkers. `make golden` makes this file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from preference import OutcomeName, PairSummary
from preference.export.formats import SplitName
from preference.review_statistics import ReviewReport
from reasonrag.agent.agent import AgentStep
from reasonrag.agent.outcomes import OutcomeFunction
from reasonrag.agent.prompting import Prompts
from reasonrag.critics.evaluation.report import CriticEvaluation
from reasonrag.critics.train import CriticResult
from reasonrag.curation.audit.report import AuditReport
from reasonrag.curation.import_published import ImportReport
from reasonrag.curation.import_sources import Say
from reasonrag.curation.review import ReviewSample
from reasonrag.data.documents.build import CorpusSummary
from reasonrag.evaluation.ask import AgentAnswer
from reasonrag.evaluation.comparison_report import Comparison
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.evaluation.report import Report
from reasonrag.exploration.cost_estimate import CostEstimate
from reasonrag.exploration.explore import Launch
from reasonrag.exploration.summary import RunSummary
from reasonrag.llm.chat import ChatModel
from reasonrag.progress import Watcher
from reasonrag.publishing.publish import Publication
from reasonrag.publishing.publish_model import ModelPublication
from reasonrag.retrieval.dense.build_progress import BuildWatcher
from reasonrag.retrieval.dense.manifest import IndexManifest
from reasonrag.retrieval.index import IndexCheck, SearchResult
from reasonrag.retrieval.index_build import LaunchEncoding
from reasonrag.retrieval.retriever import Retriever
from reasonrag.scale.merge import Merged
from reasonrag.studies.calibrate import Calibration
from reasonrag.studies.tune import Tuning
from reasonrag.training.doctor.doctor import Diagnosis
from reasonrag.training.progress import TrainingWatcher
from reasonrag.training.prompt_parity import DataConditions
from reasonrag.training.stages.training import TrainingResult
from reasonrag.viewing.load import Pairs, Rollouts
from reasonrag.viewing.overview import Overview
from reasonrag.viewing.question_view import QuestionView
from typing import Any, Literal

__version__: str
__all__ = [
    "__version__",
    "ask",
    "audit",
    "calibrate",
    "check_renderer",
    "compare",
    "corpus_build",
    "doctor",
    "estimate",
    "evaluate",
    "evaluate_critic",
    "generate",
    "import_published",
    "index_build",
    "index_check",
    "index_serve",
    "load_pairs",
    "load_rollouts",
    "merge",
    "pairs",
    "publish",
    "review_report",
    "review_sample",
    "search",
    "show",
    "stats",
    "train",
    "train_critic",
    "tune",
    "view",
]

def ask(
    question: str,
    *,
    chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    told: Callable[[AgentStep, PredictedStep], None] = ...,
    index: str | Path | Sequence[str | Path] = [],
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    index_type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    reranker: str | None = None,
    gpu: bool = False,
    top_k: int = 3,
    max_passage_chars: int | None = None,
    passage_order: Literal["best-first", "worst-first"] | None = None,
    dataset: str | Sequence[str] = [],
    split: str = "train",
    limit: int | None = None,
    sample: int | None = None,
    data_dir: str | Path | None = None,
    questions: str | Path | None = None,
    corpus: str | Path | None = None,
    model: str | Path | None = None,
    base_url: str | Sequence[str] = [],
    prompts: str | Path | None = None,
    style: Literal["short", "long"] = "short",
    max_steps: int | None = None,
    concurrency: int = 32,
    seed: int = 0,
    temperature: float = 0.0,
    top_p: float | None = None,
    max_reply_tokens: int = 512,
    extra_body: str | Mapping[str, Any] | None = None,
    reasoning_effort: Literal["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None,
    max_cost: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
    rpm: int | None = None,
    tpm: int | None = None,
    timeout: float = 300.0,
    max_wait: float = 2880.0,
    critic: str | Path | None = None,
    allow_critic: bool = False,
    best_of: int | None = None,
    preset: Literal["reasonrag"] | None = None,
    base_model: str | Path | None = None,
    tensor_parallel: int | None = None,
    max_model_len: int | None = None,
    trained_on: str | Path | None = None,
    patience: float = 120.0,
) -> AgentAnswer:
    """Answer one question with the agent, and write no file.

    Raises InputError before any request, ModelError and RetrievalError if no answer can be obtained, CapReached if
    the next request could exceed a cap.

    Example:
        >>> found = reasonrag.ask("Who was born first, Bam Traecel or Bex Traecel?", dataset="atlas", model="offline")
        >>> type(found.answer)
        <class 'str'>

    Args:
        question: the question, in words.
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        critic_model: used instead of the critic that the settings would open; its replies are numbers.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        told: called with every step as it is taken, and what is recorded of it.
        index: Index to search, or where to build it; repeat for hybrid
        index_home: Folder of indexes that are built without --index
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) [default: the
            index's own, else minilm]
        index_type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]
        reranker: Cross-encoder that reranks passages: a folder or a name on the Hub
        gpu: Search dense indexes on GPUs; needs the index-gpu extra
        top_k: Passages per search
        max_passage_chars: Cut passages longer than this many characters (at least 100) at a sentence end, marked
            with [...] [default: no cut]
        passage_order: Order of passages in a prompt: best-first or worst-first [default: best-first]
        dataset: Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the built-in
            atlas, or a folder of --data-dir; generate and tune mix several if it is repeated [default: atlas]
        split: Split of the data set
        limit: Use only the first N questions; a later session may raise it
        sample: Draw N questions per data set at random, stratified by question type; --seed decides which. A later
            session may raise it
        data_dir: Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on
            the Hub]
        questions: Your own questions (JSONL), instead of --dataset
        corpus: Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the data set's corpus,
            else the passages in the question file]
        model: Model name at the endpoint, folder of a trained model (which is served while the command runs), or
            offline [default for atlas: offline; otherwise required]
        base_url: OpenAI-compatible endpoint; repeat to spread the load over several [default: OPENAI_BASE_URL, else
            OpenAI's]
        prompts: Folder with your own prompts, any of begin.txt think.txt read.txt conclude.txt short.txt long.txt
            repair.txt vary.txt judge.txt rank.txt answer.txt rubric.txt; or reasonrag-published, the prompts of
            imported data
        style: Length of answers: short (a name, a date, yes or no) or long (sentences, which a judge scores). A
            question's metadata.style takes precedence
        max_steps: Maximum steps per answer; at the last one the agent must answer [default: 7]
        concurrency: HTTP requests in flight per model
        seed: Seed of the run
        temperature: Sampling temperature; 0: greedy
        top_p: Nucleus sampling probability [default: 1]
        max_reply_tokens: Maximum tokens per completion, reasoning tokens included
        extra_body: JSON object of extra fields for every request to the model: '{"reasoning_effort": "low"}', for
            Qwen3 '{"chat_template_kwargs": {"enable_thinking": false}}'
        reasoning_effort: How much the model reasons before it answers, billed as completion tokens: none, minimal,
            low, medium, high, xhigh or max, of which a model takes some; default sends nothing [default: none where
            the trial request shows that the model reasons and takes that]
        max_cost: Stop before the run costs more than this many dollars
        max_calls: Stop before the run uses more than this many completions
        max_tokens: Stop before the run uses more than this many tokens
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the list price]
        price_out: Dollars per million completion tokens [default: the list price]
        rpm: Requests per minute for each endpoint and model [default: from response headers]
        tpm: Tokens per minute for each endpoint and model [default: from response headers]
        timeout: Seconds before an unanswered request is given up
        max_wait: Minutes that endpoints may ask to wait; beyond, the run stops (status 3) and the same command
            continues it
        critic: Critic that scores steps: a folder that train-critic wrote, which is served while the command runs,
            or the URL of a server. Its scores count as calls towards the caps
        allow_critic: Use the critic although it failed its evaluation, was trained on these questions or on other
            prompts
        best_of: Draw so many replies in every state (2, 4, 8 or 10, say) and take the step that --critic scores
            highest (arXiv 2502.13957, Algorithm 1); --temperature is then 1 by default
        preset: reasonrag: the settings of the published model: 9 completions (4 searches) of 256 tokens, 3
            passages, temperature 0; for the agent also worst first as in its training data, and --prompts
            reasonrag-published unless the model folder has prompts. Flags take precedence
        base_model: Base model of an adapter: a folder or a name on the Hub [default: the one named in the adapter]
        tensor_parallel: GPUs among which vLLM divides a model folder's weights; without vLLM no effect [default: 1]
        max_model_len: Tokens of prompt and reply that vLLM allows a model folder; without vLLM no effect [default:
            the model's own]
        trained_on: Folder of the model, or of its training data, if --model is a name on a server; checks that
            questions and conditions match the training
        patience: Seconds without a response before the endpoint counts as lost
    """

def audit(
    directory: str | Path,
    *,
    tokenizer: Literal["qwen2.5", "estimate"] | None = None,
    allow: str | Sequence[str] = [],
    out: str | Path | None = None,
) -> AuditReport:
    """Check a data set, or one file of it, and write `audit.json` and `audit.html` there.

    Errors in the data raise nothing: see `AuditReport.errors`. Raises InputError if there are no rows to read, and
    OSError if the report cannot be written.

    Example:
        >>> reasonrag.audit("data/first").errors
        []

    Args:
        directory: a data set, or one file of rows; a run stands for the data set that `pairs` made of it.
        tokenizer: How tokens are counted: qwen2.5 or estimate, four characters a token [default: qwen2.5 if the
            tokens extra is installed, else estimate]
        allow: Accept this error, by its name; repeatable
        out: Folder for audit.json and audit.html [default: beside the data]
    """

def calibrate(
    run: str | Path,
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | None = None,
    watcher: Watcher | None = None,
    outcome: OutcomeFunction | None = None,
    revalue: int = 40,
    k: int = 16,
    seed: int = 0,
    min_confidence: float = 0.7,
    model: str | None = None,
    base_url: str | Sequence[str] = [],
    corpus: str | Path | None = None,
    index: str | Path | Sequence[str | Path] = [],
    prompts: str | Path | None = None,
    concurrency: int = 32,
    max_cost: float | None = None,
    max_calls: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
) -> Calibration:
    """Check how far the labels of a run can be trusted, by fresh continuations.

    Raises InputError if the run cannot be read or what it was made with is missing; RunStopped if a cap or a lost
    endpoint ended it, KeyboardInterrupt after Ctrl-C. The same call then resumes it.

    Example:
        >>> checked = reasonrag.calibrate("runs/first", revalue=5, k=8)
        >>> checked.questions
        10

    Args:
        run: a run directory of `generate`.
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one of the run.
        watcher: is told what happens while it goes on; none: silent.
        outcome: the function that valued the answers of the run, if there was one; a revaluation needs it again.
        revalue: Pairs whose rewards are measured again with fresh continuations
        k: Fresh continuations per step
        seed: Seed of the sample of pairs
        min_confidence: Minimum confidence of the sampled pairs
        model: Model that continues the steps. Its key is read from OPENAI_API_KEY, or from REASONRAG_VALUE_API_KEY
            for the run's value model at its own endpoint [default: the run's value model, else its teacher]
        base_url: OpenAI-compatible endpoint of that model; repeatable [default: the run's]
        corpus: Corpus of the run, if it was moved
        index: Index of the run, if it was moved; repeatable
        prompts: Folder with the run's own prompts, if it was moved
        concurrency: HTTP requests in flight
        max_cost: Stop before all calibrations of this run with this model cost more than this many dollars
        max_calls: Stop before they use more than this many completions
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the run's, else the list price]
        price_out: Dollars per million completion tokens [default: the run's, else the list price]
    """

def check_renderer(data_set: str | Path, prompts: Prompts | None = None) -> DataConditions:
    """The prompting conditions of a data set, if one renderer made all of it: the one of `prompts`.

    Raises InputError for a mixture of renderers, for a renderer that differs from that of the prompts, and for a
    folder that cannot be read.

    Example:
        >>> reasonrag.check_renderer("data/first").top_k
        (3,)

    Args:
        data_set: a folder written by `pairs`, or just its RAG_ProGuide.json.
        prompts: those that a model will be prompted with; none: skips that comparison.
    """

def compare(
    runs: Sequence[str | Path] = ...,
    *,
    out: str | Path | None = None,
    group: str | Sequence[str] = [],
    confidence: float = 0.95,
    bootstrap: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare evaluations with the first of them, and write `compare.json` and `compare.md`.

    Raises InputError for evaluations that are not comparable.

    Example:
        >>> comparison = reasonrag.compare(["evals/rag", "evals/agent"], out="evals/compared")
        >>> comparison.questions
        5

    Args:
        runs: directories of `evaluate`; the first is compared with the others.
        out: where to write; none: `compare-A-B` beside the first.
        group: NAME=RUN,RUN: evaluations of one condition with several seeds; repeatable. Groups are compared after
            single runs
        confidence: Confidence level of the intervals
        bootstrap: Bootstrap resamples per interval
        seed: Seed of the resamples
    """

def corpus_build(
    folder: str | Path,
    *,
    advanced: Callable[[int, int], object] = ...,
    out: str | Path | None = None,
    max_chars: int = 1000,
    language: str | Sequence[str] = [],
) -> CorpusSummary:
    """Write the passages of a folder's documents as a corpus.

    Raises InputError if the folder cannot be read or has no text, if `out` cannot be written or holds something else
    than a corpus, and where the extra `corpus` is missing.

    Example:
        >>> built = reasonrag.corpus_build("handbook", out="corpora/handbook.jsonl")
        >>> built.passages
        2

    Args:
        folder: of Markdown, HTML, text and PDF files.
        advanced: called with the number of files read so far, and of all.
        out: File of the corpus [default: corpora/<folder>.jsonl]
        max_chars: Maximum characters per passage, without its title
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
    """

def doctor(
    config: str = "qwen2.5-7b-dpo-lora",
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    prompts: str | Path | None = None,
    model: str | Path | None = None,
    set: str | Sequence[str] = [],
    gpus: int | None = None,
    gpu_memory: float | None = None,
) -> Diagnosis:
    """Check the machine, a training configuration, and the data it would train on.

    Everything that is wrong is in `Diagnosis.findings`. Raises InputError only for an unknown configuration, for a
    model of unknown shape and for missing prompts.

    Example:
        >>> diagnosis = reasonrag.doctor("qwen2.5-7b-dpo-lora", gpus=4, gpu_memory=80)
        >>> wrong = [finding for finding in diagnosis.findings if finding.severity == "error"]

    Args:
        config: the name of a configuration in `train_configs/`, or your own file.
        data: Data set to train on: a folder written by pairs
        out: Folder of the trained model, to check its disk space [default: the configuration's]
        prompts: Folder with your own prompts, if the model will use them
        model: Folder of the model, or a name of Qwen2.5 [default: the configuration's, else Qwen2.5-7B-Instruct]
        set: KEY=VALUE: change a key of the configuration, as for train; repeatable
        gpus: Total number of GPUs to plan for [default: those of this machine, else 1]
        gpu_memory: Memory per GPU to plan for, in GB as cards are sold [default: that of this machine, else 80]
    """

def estimate(
    *,
    watcher: Watcher | None = None,
    chat_model: ChatModel | None = None,
    value_chat_model: ChatModel | None = None,
    outcome: OutcomeName | OutcomeFunction | None = None,
    retriever: str | None = None,
    index: str | Path | Sequence[str | Path] = [],
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    index_type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    reranker: str | None = None,
    gpu: bool = False,
    top_k: int = 3,
    max_passage_chars: int | None = None,
    passage_order: Literal["best-first", "worst-first"] | None = None,
    dataset: str | Sequence[str] = [],
    split: str = "train",
    limit: int | None = None,
    sample: int | None = None,
    data_dir: str | Path | None = None,
    questions: str | Path | None = None,
    corpus: str | Path | None = None,
    model: str | None = None,
    base_url: str | Sequence[str] = [],
    prompts: str | Path | None = None,
    style: Literal["short", "long"] = "short",
    max_steps: int | None = None,
    concurrency: int = 32,
    seed: int = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    max_reply_tokens: int = 512,
    extra_body: str | Mapping[str, Any] | None = None,
    reasoning_effort: Literal["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None,
    max_cost: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
    rpm: int | None = None,
    tpm: int | None = None,
    timeout: float = 300.0,
    max_wait: float = 2880.0,
    run: str | Path | None = None,
    steps_by_hops: bool = False,
    value_model: str | None = None,
    value_base_url: str | Sequence[str] = [],
    value_temperature: float | None = None,
    value_extra_body: str | Mapping[str, Any] | None = None,
    recipe: str = "economy",
    set: str | Sequence[str] = [],
    rubric: str | Path | None = None,
    value_price_in: float | None = None,
    value_price_out: float | None = None,
    abort_degenerate: float = 0.95,
    shard: str | None = None,
    on: Literal["here", "ray"] = "here",
    workers: int | None = None,
    address: str | None = None,
) -> CostEstimate:
    """Estimate what `generate` with these settings would use: requests, tokens, dollars and hours.

    Needs no key. Raises InputError as `generate` does, and if no question could be rehearsed.

    Example:
        >>> price = reasonrag.estimate(dataset="atlas", limit=100, model="gpt-4o")
        >>> price.dollars.low < price.dollars.high
        True

    Args:
        watcher: is told what happens while it goes on; none: silent.
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        value_chat_model: likewise for the value model.
        outcome: a name, or a function as for `generate`.
        retriever: bm25, dense, hybrid, or the address of a retrieval server (http://host:port; its token is read
            from REASONRAG_RETRIEVER_TOKEN) [default: the kind of --index, else bm25]
        index: Index to search, or where to build it; repeat for hybrid
        index_home: Folder of indexes that are built without --index
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) [default: the
            index's own, else minilm]
        index_type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]
        reranker: Cross-encoder that reranks passages: a folder or a name on the Hub
        gpu: Search dense indexes on GPUs; needs the index-gpu extra
        top_k: Passages per search
        max_passage_chars: Cut passages longer than this many characters (at least 100) at a sentence end, marked
            with [...] [default: no cut]
        passage_order: Order of passages in a prompt: best-first or worst-first [default: best-first; released:
            worst-first]
        dataset: Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the built-in
            atlas, or a folder of --data-dir; generate and tune mix several if it is repeated [default: atlas]
        split: Split of the data set
        limit: Use only the first N questions; a later session may raise it
        sample: Draw N questions per data set at random, stratified by question type; --seed decides which. A later
            session may raise it
        data_dir: Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on
            the Hub]
        questions: Your own questions (JSONL), instead of --dataset
        corpus: Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the data set's corpus,
            else the passages in the question file]
        model: Teacher: a model name at the endpoint, or offline [default: offline for atlas; otherwise gpt-4o if
            OPENAI_API_KEY is set, else required]
        base_url: OpenAI-compatible endpoint; repeat to spread the load over several [default: OPENAI_BASE_URL, else
            OpenAI's]
        prompts: Folder with your own prompts, any of begin.txt think.txt read.txt conclude.txt short.txt long.txt
            repair.txt vary.txt judge.txt rank.txt answer.txt rubric.txt; or reasonrag-published, the prompts of
            imported data
        style: Length of answers: short (a name, a date, yes or no) or long (sentences, which a judge scores). A
            question's metadata.style takes precedence
        max_steps: Maximum steps per answer; at the last one the agent must answer [default by recipe: 7; reasonrag
            and released 8; prorag and ragym 10]
        concurrency: HTTP requests in flight per model
        seed: Seed of the run
        temperature: Sampling temperature [default: 1; prorag: 0.9]
        top_p: Nucleus sampling probability [default: 1; prorag: 0.95]
        max_reply_tokens: Maximum tokens per completion, reasoning tokens included
        extra_body: JSON object of extra fields for every request to the model: '{"reasoning_effort": "low"}', for
            Qwen3 '{"chat_template_kwargs": {"enable_thinking": false}}'
        reasoning_effort: How much the model reasons before it answers, billed as completion tokens: none, minimal,
            low, medium, high, xhigh or max, of which a model takes some; default sends nothing [default: none where
            the trial request shows that the model reasons and takes that]
        max_cost: Stop before the run costs more than this many dollars
        max_calls: Stop before the run uses more than this many completions
        max_tokens: Stop before the run uses more than this many tokens
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the list price]
        price_out: Dollars per million completion tokens [default: the list price]
        rpm: Requests per minute for each endpoint and model [default: from response headers]
        tpm: Tokens per minute for each endpoint and model [default: from response headers]
        timeout: Seconds before an unanswered request is given up
        max_wait: Minutes that endpoints may ask to wait; beyond, the run stops (status 3) and the same command
            continues it
        run: Run directory; a run that was stopped there is continued [default: runs/<dataset>-<split>-<recipe>]
        steps_by_hops: Give a question the steps for one search more than it has hops (3 hops: 9 steps, 4: 11, 8 and
            more: 19), if that is more than --max-steps. metadata.hops, a MuSiQue id or the number of gold passages
            tells
        value_model: Model that continues the teacher's steps, for example the student: rewards are then the
            student's. offline: the extractive teacher [default: the teacher]
        value_base_url: OpenAI-compatible endpoint of the value model; repeatable [default: --base-url]
        value_temperature: Sampling temperature of the value model [default: --temperature]
        value_extra_body: JSON object of extra fields for every request to the value model
        recipe: Search and labels: economy, reasonrag, continuation, released, prorag, ragym, or a YAML file that
            holds the values of one; see docs/reference/recipes.md
        set: KEY=VALUE: change a value of the recipe, as in search.siblings=6, search.simulations=32,
            search.max_calls=64 or reward=outcome; repeatable. docs/reference/recipes.md lists them
        rubric: Text file with criteria for an answer, one per line, for questions without metadata.rubric; with
            --outcome rubric
        value_price_in: Dollars per million prompt tokens of the value model [default: the list price, or 0 with
            --value-base-url]
        value_price_out: Dollars per million completion tokens of the value model [default: the list price, or 0
            with --value-base-url]
        abort_degenerate: Stop if this share of questions shows the same sign of degeneracy and gives no pair; 0:
            never
        shard: Work as one rank of several: i/n is the i-th of n, from 0. It takes the questions whose ids hash to
            i, in a folder of its own below the run's; `reasonrag merge` joins them. Caps and rate limits are
            divided by n
        on: Where the work is done: here, in this process, or ray, by workers on a Ray cluster, which is started on
            this machine if there is none; needs the ray extra
        workers: Ranks at a time with --on ray [default: as many as the run has, else 2]
        address: Ray cluster to join: auto, or HOST:PORT [default: RAY_ADDRESS, else a cluster on this machine]
    """

def evaluate(
    *,
    chat_model: ChatModel | None = None,
    judge_chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    index: str | Path | Sequence[str | Path] = [],
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    index_type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    reranker: str | None = None,
    gpu: bool = False,
    top_k: int = 3,
    max_passage_chars: int | None = None,
    passage_order: Literal["best-first", "worst-first"] | None = None,
    dataset: str | Sequence[str] = [],
    split: str = "dev",
    limit: int | None = None,
    sample: int | None = None,
    data_dir: str | Path | None = None,
    questions: str | Path | None = None,
    corpus: str | Path | None = None,
    model: str | Path | None = None,
    base_url: str | Sequence[str] = [],
    prompts: str | Path | None = None,
    style: Literal["short", "long"] = "short",
    max_steps: int | None = None,
    concurrency: int = 32,
    seed: int = 0,
    temperature: float = 0.0,
    top_p: float | None = None,
    max_reply_tokens: int = 512,
    extra_body: str | Mapping[str, Any] | None = None,
    reasoning_effort: Literal["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None,
    max_cost: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
    rpm: int | None = None,
    tpm: int | None = None,
    timeout: float = 300.0,
    max_wait: float = 2880.0,
    critic: str | Path | None = None,
    allow_critic: bool = False,
    best_of: int | None = None,
    preset: Literal["reasonrag"] | None = None,
    base_model: str | Path | None = None,
    tensor_parallel: int | None = None,
    max_model_len: int | None = None,
    trained_on: str | Path | None = None,
    patience: float = 120.0,
    run: str | Path | None = None,
    method: Literal[
        "agent", "direct", "cot", "rag", "iter-retgen", "search-r1", "ircot", "flare", "adaptive-rag-prompted"
    ] = "agent",
    vote: int | None = None,
    repair: bool = True,
    judge: str | None = None,
    judge_base_url: str | Sequence[str] = [],
    judge_extra_body: str | Mapping[str, Any] | None = None,
    judge_price_in: float | None = None,
    judge_price_out: float | None = None,
    allow: str | Sequence[str] = [],
    bootstrap: int = 2000,
    bootstrap_seed: int = 0,
    confidence: float = 0.95,
) -> Report:
    """Answer the questions of a split with a model, and measure the answers.

    Works inside a running event loop too. Failed questions are in the report. Raises InputError before anything is
    asked; RunStopped where a cap, a lost endpoint or a full disk ended it, and KeyboardInterrupt after Ctrl-C: what
    was answered is kept, and the same call goes on.

    Example:
        >>> agent = reasonrag.evaluate(dataset="atlas", split="dev", limit=5, model="offline", run="evals/agent")
        >>> same = {"dataset": "atlas", "split": "dev", "limit": 5, "model": "offline"}
        >>> rag = reasonrag.evaluate(**same, method="rag", run="evals/rag")
        >>> agent.questions
        5

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        judge_chat_model: used instead of the judge that the settings would open.
        critic_model: used instead of the critic that the settings would open; its replies are numbers.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        index: Index to search, or where to build it; repeat for hybrid
        index_home: Folder of indexes that are built without --index
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) [default: the
            index's own, else minilm]
        index_type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]
        reranker: Cross-encoder that reranks passages: a folder or a name on the Hub
        gpu: Search dense indexes on GPUs; needs the index-gpu extra
        top_k: Passages per search
        max_passage_chars: Cut passages longer than this many characters (at least 100) at a sentence end, marked
            with [...] [default: no cut]
        passage_order: Order of passages in a prompt: best-first or worst-first [default: best-first]
        dataset: Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the built-in
            atlas, or a folder of --data-dir; generate and tune mix several if it is repeated [default: atlas]
        split: Split of the data set; bamboogle and popqa have test
        limit: Use only the first N questions; a later session may raise it
        sample: Draw N questions per data set at random, stratified by question type; --seed decides which. A later
            session may raise it
        data_dir: Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on
            the Hub]
        questions: Your own questions (JSONL), instead of --dataset
        corpus: Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the data set's corpus,
            else the passages in the question file]
        model: Model name at the endpoint, folder of a trained model (which is served while the command runs), or
            offline [default for atlas: offline; otherwise required]
        base_url: OpenAI-compatible endpoint; repeat to spread the load over several [default: OPENAI_BASE_URL, else
            OpenAI's]
        prompts: Folder with your own prompts, any of begin.txt think.txt read.txt conclude.txt short.txt long.txt
            repair.txt vary.txt judge.txt rank.txt answer.txt rubric.txt; or reasonrag-published, the prompts of
            imported data
        style: Length of answers: short (a name, a date, yes or no) or long (sentences, which a judge scores). A
            question's metadata.style takes precedence
        max_steps: Budget of a question, of every method: at most N completions, repair turns apart, and (N-1)//2
            searches; the agent must answer at its last step [default: 7]
        concurrency: HTTP requests in flight per model
        seed: Seed of the run
        temperature: Sampling temperature; 0: greedy
        top_p: Nucleus sampling probability [default: 1]
        max_reply_tokens: Maximum tokens per completion, reasoning tokens included
        extra_body: JSON object of extra fields for every request to the model: '{"reasoning_effort": "low"}', for
            Qwen3 '{"chat_template_kwargs": {"enable_thinking": false}}'
        reasoning_effort: How much the model reasons before it answers, billed as completion tokens: none, minimal,
            low, medium, high, xhigh or max, of which a model takes some; default sends nothing [default: none where
            the trial request shows that the model reasons and takes that]
        max_cost: Stop before the run costs more than this many dollars
        max_calls: Stop before the run uses more than this many completions
        max_tokens: Stop before the run uses more than this many tokens
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the list price]
        price_out: Dollars per million completion tokens [default: the list price]
        rpm: Requests per minute for each endpoint and model [default: from response headers]
        tpm: Tokens per minute for each endpoint and model [default: from response headers]
        timeout: Seconds before an unanswered request is given up
        max_wait: Minutes that endpoints may ask to wait; beyond, the run stops (status 3) and the same command
            continues it
        critic: Critic that scores steps: a folder that train-critic wrote, which is served while the command runs,
            or the URL of a server. Its scores count as calls towards the caps
        allow_critic: Use the critic although it failed its evaluation, was trained on these questions or on other
            prompts
        best_of: Draw so many replies in every state (2, 4, 8 or 10, say) and take the step that --critic scores
            highest (arXiv 2502.13957, Algorithm 1); --temperature is then 1 by default
        preset: reasonrag: the settings of the published model: 9 completions (4 searches) of 256 tokens, 3
            passages, temperature 0; for the agent also worst first as in its training data, and --prompts
            reasonrag-published unless the model folder has prompts. Flags take precedence
        base_model: Base model of an adapter: a folder or a name on the Hub [default: the one named in the adapter]
        tensor_parallel: GPUs among which vLLM divides a model folder's weights; without vLLM no effect [default: 1]
        max_model_len: Tokens of prompt and reply that vLLM allows a model folder; without vLLM no effect [default:
            the model's own]
        trained_on: Folder of the model, or of its training data, if --model is a name on a server; checks that
            questions and conditions match the training
        patience: Seconds without a response before the endpoint counts as lost
        run: Directory of the evaluation; an interrupted one found there is continued [default:
            evals/QUESTIONS-SPLIT-METHOD-MODEL]
        method: How questions are answered: agent, or a baseline: direct or cot (without passages), rag,
            iter-retgen, search-r1, ircot, flare (needs token log-probabilities), adaptive-rag-prompted
        vote: Answer every question so many times and take the answer that most attempts agree on
            (self-consistency); --temperature is then 1 by default
        repair: Give an unreadable reply of any method one repair turn, which does not count towards the budget
        judge: Model that scores every answer against the gold answers: a model name, or offline
        judge_base_url: Endpoint of the judge; its key is read from REASONRAG_JUDGE_API_KEY [default: --base-url]
        judge_extra_body: JSON object of extra fields for every request to the judge
        judge_price_in: Dollars per million prompt tokens of the judge [default: the list price]
        judge_price_out: Dollars per million completion tokens of the judge [default: the list price]
        allow: Warn, but go on, if this differs from training; repeatable: renderer, top_k, retriever, max_steps,
            max_passage_chars, passage_order, style, trained_questions
        bootstrap: Bootstrap resamples per interval
        bootstrap_seed: Seed of the resamples
        confidence: Confidence level of the intervals
    """

def evaluate_critic(
    critic: str | Path,
    runs: str | Path,
    *,
    critic_model: ChatModel | None = None,
    outcome_model: ChatModel | None = None,
    watcher: Watcher | None = None,
    against: str | Path | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    min_observations: float = 4.0,
    bootstrap: int = 2000,
    seed: int = 0,
    concurrency: int = 32,
    max_calls: int | None = None,
) -> CriticEvaluation:
    """Measure how well a critic judges the steps of trees that it was not trained on.

    Writes `critic_evaluation.json`, and a verdict, unless it is undecided, into the critic's folder: one that failed is
    refused by the other commands. Raises InputError before anything is asked; RunStopped where a cap or a lost endpoint
    ended it, and KeyboardInterrupt after Ctrl-C: scores are kept, and the same call goes on.

    Example:
        >>> reasonrag.evaluate_critic("critics/first", "runs/held-out")  # doctest: +SKIP

    Args:
        critic: its folder, or the URL of a server.
        runs: run directories, of other questions than it was trained on, or with some others.
        critic_model: asked instead of opening the critic; its replies are numbers.
        outcome_model: asked instead of opening the one of `against`.
        watcher: is told what happens while it goes on; none: silent.
        against: Outcome model of the same size, which the critic has to beat to pass: a critic of data labelled by
            --label outcome
        out: Folder of the evaluation [default: evaluation in the critic's folder]
        limit: Use only the first N questions of every run
        min_observations: Continuations behind a step's value from which on it counts as the truth, where no fresh
            ones are known
        bootstrap: Bootstrap resamples of questions per interval
        seed: Seed of resamples, and of pairs scored without their state
        concurrency: HTTP requests in flight
        max_calls: Stop before the critics give more than this many scores
    """

def generate(
    *,
    chat_model: ChatModel | None = None,
    value_chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    replay: bool | str | Path = False,
    outcome: OutcomeName | OutcomeFunction | None = None,
    launch: Launch | None = None,
    index: str | Path | Sequence[str | Path] = [],
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    index_type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    reranker: str | None = None,
    gpu: bool = False,
    top_k: int = 3,
    max_passage_chars: int | None = None,
    passage_order: Literal["best-first", "worst-first"] | None = None,
    dataset: str | Sequence[str] = [],
    split: str = "train",
    limit: int | None = None,
    sample: int | None = None,
    data_dir: str | Path | None = None,
    questions: str | Path | None = None,
    corpus: str | Path | None = None,
    model: str | None = None,
    base_url: str | Sequence[str] = [],
    prompts: str | Path | None = None,
    style: Literal["short", "long"] = "short",
    max_steps: int | None = None,
    concurrency: int = 32,
    seed: int = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    max_reply_tokens: int = 512,
    extra_body: str | Mapping[str, Any] | None = None,
    reasoning_effort: Literal["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None,
    max_cost: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
    rpm: int | None = None,
    tpm: int | None = None,
    timeout: float = 300.0,
    max_wait: float = 2880.0,
    run: str | Path | None = None,
    steps_by_hops: bool = False,
    value_model: str | None = None,
    value_base_url: str | Sequence[str] = [],
    value_temperature: float | None = None,
    value_extra_body: str | Mapping[str, Any] | None = None,
    recipe: str = "economy",
    set: str | Sequence[str] = [],
    rubric: str | Path | None = None,
    value_price_in: float | None = None,
    value_price_out: float | None = None,
    abort_degenerate: float = 0.95,
    shard: str | None = None,
    on: Literal["here", "ray"] = "here",
    workers: int | None = None,
    address: str | None = None,
) -> RunSummary:
    """Explore questions with a teacher, and write step-level rollouts to a run directory.

    The same call continues an interrupted run. Works inside a running event loop too. Failed questions, with their
    causes, and what stopped a run early are in the summary. Raises InputError before anything is started, and
    StorageError if writing fails; after Ctrl-C it saves the state, then raises KeyboardInterrupt.

    Example:
        >>> run = reasonrag.generate(dataset="atlas", limit=10, run="runs/first")
        >>> run.done, run.failed
        (10, 0)

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        value_chat_model: likewise for the value model, which continues the teacher's steps.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        replay: send no requests; answers come from the run's journal, or from the journal at this path.
        outcome: a name, or a function of a `Question` and the text of an answer that returns the answer's quality
            from 0 to 1 and is recorded under its `__name__`. It is called in the event loop's thread, once per
            distinct answer to a question; gold answers are then not needed. A question for which it fails has no
            tree: it is counted in `failed`, `warnings` says why, and Python warns.
        launch: who carries out `on="ray"`: `reasonrag.scale.ray_ranks.explore_on_ray`, which the command line gives.
        index: Index to search, or where to build it; repeat for hybrid
        index_home: Folder of indexes that are built without --index
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) [default: the
            index's own, else minilm]
        index_type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]
        reranker: Cross-encoder that reranks passages: a folder or a name on the Hub
        gpu: Search dense indexes on GPUs; needs the index-gpu extra
        top_k: Passages per search
        max_passage_chars: Cut passages longer than this many characters (at least 100) at a sentence end, marked
            with [...] [default: no cut]
        passage_order: Order of passages in a prompt: best-first or worst-first [default: best-first; released:
            worst-first]
        dataset: Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the built-in
            atlas, or a folder of --data-dir; generate and tune mix several if it is repeated [default: atlas]
        split: Split of the data set
        limit: Use only the first N questions; a later session may raise it
        sample: Draw N questions per data set at random, stratified by question type; --seed decides which. A later
            session may raise it
        data_dir: Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on
            the Hub]
        questions: Your own questions (JSONL), instead of --dataset
        corpus: Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the data set's corpus,
            else the passages in the question file]
        model: Teacher: a model name at the endpoint, or offline [default: offline for atlas; otherwise gpt-4o if
            OPENAI_API_KEY is set, else required]
        base_url: OpenAI-compatible endpoint; repeat to spread the load over several [default: OPENAI_BASE_URL, else
            OpenAI's]
        prompts: Folder with your own prompts, any of begin.txt think.txt read.txt conclude.txt short.txt long.txt
            repair.txt vary.txt judge.txt rank.txt answer.txt rubric.txt; or reasonrag-published, the prompts of
            imported data
        style: Length of answers: short (a name, a date, yes or no) or long (sentences, which a judge scores). A
            question's metadata.style takes precedence
        max_steps: Maximum steps per answer; at the last one the agent must answer [default by recipe: 7; reasonrag
            and released 8; prorag and ragym 10]
        concurrency: HTTP requests in flight per model
        seed: Seed of the run
        temperature: Sampling temperature [default: 1; prorag: 0.9]
        top_p: Nucleus sampling probability [default: 1; prorag: 0.95]
        max_reply_tokens: Maximum tokens per completion, reasoning tokens included
        extra_body: JSON object of extra fields for every request to the model: '{"reasoning_effort": "low"}', for
            Qwen3 '{"chat_template_kwargs": {"enable_thinking": false}}'
        reasoning_effort: How much the model reasons before it answers, billed as completion tokens: none, minimal,
            low, medium, high, xhigh or max, of which a model takes some; default sends nothing [default: none where
            the trial request shows that the model reasons and takes that]
        max_cost: Stop before the run costs more than this many dollars
        max_calls: Stop before the run uses more than this many completions
        max_tokens: Stop before the run uses more than this many tokens
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the list price]
        price_out: Dollars per million completion tokens [default: the list price]
        rpm: Requests per minute for each endpoint and model [default: from response headers]
        tpm: Tokens per minute for each endpoint and model [default: from response headers]
        timeout: Seconds before an unanswered request is given up
        max_wait: Minutes that endpoints may ask to wait; beyond, the run stops (status 3) and the same command
            continues it
        run: Run directory; a run that was stopped there is continued [default: runs/<dataset>-<split>-<recipe>]
        steps_by_hops: Give a question the steps for one search more than it has hops (3 hops: 9 steps, 4: 11, 8 and
            more: 19), if that is more than --max-steps. metadata.hops, a MuSiQue id or the number of gold passages
            tells
        value_model: Model that continues the teacher's steps, for example the student: rewards are then the
            student's. offline: the extractive teacher [default: the teacher]
        value_base_url: OpenAI-compatible endpoint of the value model; repeatable [default: --base-url]
        value_temperature: Sampling temperature of the value model [default: --temperature]
        value_extra_body: JSON object of extra fields for every request to the value model
        recipe: Search and labels: economy, reasonrag, continuation, released, prorag, ragym, or a YAML file that
            holds the values of one; see docs/reference/recipes.md
        set: KEY=VALUE: change a value of the recipe, as in search.siblings=6, search.simulations=32,
            search.max_calls=64 or reward=outcome; repeatable. docs/reference/recipes.md lists them
        rubric: Text file with criteria for an answer, one per line, for questions without metadata.rubric; with
            --outcome rubric
        value_price_in: Dollars per million prompt tokens of the value model [default: the list price, or 0 with
            --value-base-url]
        value_price_out: Dollars per million completion tokens of the value model [default: the list price, or 0
            with --value-base-url]
        abort_degenerate: Stop if this share of questions shows the same sign of degeneracy and gives no pair; 0:
            never
        shard: Work as one rank of several: i/n is the i-th of n, from 0. It takes the questions whose ids hash to
            i, in a folder of its own below the run's; `reasonrag merge` joins them. Caps and rate limits are
            divided by n
        on: Where the work is done: here, in this process, or ray, by workers on a Ray cluster, which is started on
            this machine if there is none; needs the ray extra
        workers: Ranks at a time with --on ray [default: as many as the run has, else 2]
        address: Ray cluster to join: auto, or HOST:PORT [default: RAY_ADDRESS, else a cluster on this machine]
    """

def import_published(
    sources: str | Path | Sequence[str | Path],
    *,
    say: Say = ...,
    out: str | Path,
    replace: bool = False,
    as_published: bool = False,
    dataset: str | None = None,
    split: str | None = None,
    questions: str | Path | Sequence[str | Path] = [],
    teacher: str | None = None,
) -> ImportReport:
    """Read published trees or pairs, repair them, and write a run or a data set.

    Raises InputError if a source cannot be read, holds neither trees nor pairs, or nothing usable, and if `out` is
    taken; nothing is written then.

    Example:
        >>> report = reasonrag.import_published("data/first/RAG_ProGuide.json", out="data/imported")
        >>> report.kind
        'pairs'

    Args:
        sources: files, or `hf://datasets/ORG/NAME/FILE`.
        say: receives progress.
        out: Output folder: a run if trees are imported, a data set if pairs are
        replace: Replace an import of other files
        as_published: Compute the rewards of trees exactly as the published builder does: none above a missing node,
            none for a forced conclusion
        dataset: Data set that the questions come from [default: unknown]
        split: Split that the questions come from [default: unknown]
        questions: Question file (JSONL, a JSON list or Parquet) with gold answers; repeatable. DATASET/SPLIT.jsonl
            also sets data set and split
        teacher: Model that wrote the completions [default: unknown]
    """

def index_build(
    *,
    watcher: BuildWatcher | None = None,
    launch: LaunchEncoding | None = None,
    corpus: str | Path,
    kind: Literal["bm25", "dense"] | None = None,
    out: str | Path | None = None,
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    from_faiss: str | Path | None = None,
    backend: Literal["flag", "sentence-transformers"] | None = None,
    pooling: Literal["cls", "mean", "lasttoken"] | None = None,
    normalize: bool | None = None,
    query_instruction: str | None = None,
    passage_instruction: str | None = None,
    max_length: int | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    batch_size: int = 64,
    device: str | Sequence[str] = [],
    gpu: bool = False,
    on: Literal["here", "ray"] = "here",
    workers: int | None = None,
    address: str | None = None,
) -> tuple[Path, IndexManifest]:
    """Build an index over a corpus; returns its directory and its manifest.

    Without `out` it goes where `generate` looks for it. A killed dense build resumes; another type over existing
    vectors is built without encoding again. Raises InputError for a bad corpus, encoder or directory.

    Example:
        >>> place, manifest = reasonrag.index_build(corpus="corpora/handbook.jsonl", out="indexes/handbook")
        >>> manifest.passages
        2

    Args:
        watcher: is told what happens while it goes on; none: silent.
        launch: makes the encoding of `on="ray"`: `reasonrag.scale.ray_encoding.RayEncoding`, which the command line
            gives.
        corpus: Passages: JSONL of {"id", "contents": "title\\ntext"}, .gz too, or
            hf://datasets/ORG/NAME[@REVISION]/FILE
        kind: bm25 or dense [default: dense if an encoder setting is given, else bm25]
        out: Folder of the index [default: a folder in --index-home, where generate finds it]
        index_home: Folder of indexes that are built without --out
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: A folder, a name on the Hub, minilm, or hashing (for tests) [default: minilm]
        type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq; vectors that exist are reused [default: flat]
        from_faiss: Take over a Flat or SQ faiss index of the corpus, such as FlashRAG's e5_Flat.index, without
            encoding
        backend: Library that runs the encoder [default: flag for BGE, else sentence-transformers]
        pooling: cls, mean or lasttoken [default: the model's own]
        normalize: Normalize vectors to length 1 [default: yes]
        query_instruction: Text before every query [default: the model's own]
        passage_instruction: Text before every passage [default: the model's own]
        max_length: Maximum tokens read per text [default: the model's limit, at most 512]
        precision: Weights while passages are encoded: fp32, bf16 or fp16 [default: bf16 if the hardware has it]
        batch_size: Passages per batch
        device: torch device, for example cuda:0; repeat to use several [default: all GPUs, else the CPU]
        gpu: Train faiss on GPUs; needs the index-gpu extra
        on: Where the work is done: here, in this process, or ray, by workers on a Ray cluster, which is started on
            this machine if there is none; needs the ray extra
        workers: Encoders at a time, with --on ray [default: one for each GPU of the cluster, else for each CPU]
        address: Ray cluster to join: auto, or HOST:PORT [default: RAY_ADDRESS, else a cluster on this machine]
    """

def index_check(
    directory: Path | str, *, questions: Path | str | None = None, watcher: BuildWatcher | None = None
) -> IndexCheck:
    """Check a whole index and its corpus: hashes and row counts.

    Raises InputError if there is no index, and for a bad question file.

    Example:
        >>> reasonrag.index_check("indexes/handbook").faults
        []

    Args:
        directory: of an index.
        questions: a question file, each question used as a query, to measure recall of gold passages and of
            answers.
        watcher: is told what happens while it goes on; none: silent.
    """

def index_serve(
    *,
    say: Callable[[str], None] = ...,
    listening: Callable[[str], None] = ...,
    retriever: str | None = None,
    index: str | Path | Sequence[str | Path] = [],
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    index_type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    reranker: str | None = None,
    gpu: bool = False,
    corpus: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8977,
    allow_host: str | Sequence[str] = [],
    max_waiting: int = 4096,
    allow_empty_queries: bool = False,
) -> None:
    """Serve an index over HTTP until SIGTERM or Ctrl-C, in the protocol of Search-R1's retrieval server.

    Raises InputError for a bad index or address.

    Example:
        >>> reasonrag.index_serve(index="indexes/handbook", port=8977)  # doctest: +SKIP

    Args:
        say: receives what is reported while it runs.
        listening: called with the address once the server accepts requests.
        retriever: bm25, dense, hybrid, or the address of a retrieval server (http://host:port; its token is read
            from REASONRAG_RETRIEVER_TOKEN) [default: the kind of --index, else bm25]
        index: Index to serve, or where to build it; repeat for hybrid
        index_home: Folder of indexes that are built without --index
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) [default: the
            index's own, else minilm]
        index_type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]
        reranker: Cross-encoder that reranks passages: a folder or a name on the Hub
        gpu: Search dense indexes on GPUs; needs the index-gpu extra
        corpus: Corpus to index if there is no index yet
        host: Address to listen on; 0.0.0.0 accepts other machines
        port: Port; 0 picks a free one
        allow_host: Host name by which clients reach the server, for example through a reverse proxy; repeatable. If
            it is given, requests for other names are refused, also with a --host beyond loopback
        max_waiting: Maximum queries waiting; more are refused with status 503 and Retry-After
        allow_empty_queries: Answer an empty query with no passages, for Search-R1's trainer, which sends some
    """

def load_pairs(directory: str | Path, *, split: SplitName = "train") -> Pairs:
    """The pairs of a data set.

    Raises InputError if there are none, or the data set is unfinished.

    Example:
        >>> rows = reasonrag.load_pairs("data/first")
        >>> rows[0]["chosen_reward"] > rows[0]["rejected_reward"]
        True
        >>> rows.to_dataset().num_rows == len(rows)
        True

    Args:
        directory: a data set that `pairs` or `import_published` wrote.
        split: train, or validation.
    """

def load_rollouts(run: str | Path) -> Rollouts:
    """The trees of a run, read one at a time.

    Raises InputError if there is no rollouts file; while iterating also for a line that is no record.

    Example:
        >>> trees = reasonrag.load_rollouts("runs/first")
        >>> len(trees)
        10
        >>> max(node.reward or 0 for tree in trees for node in tree.nodes) <= 1
        True

    Args:
        run: a run directory, or a rollouts file.
    """

def merge(run: str | Path, *, watcher: Watcher | None = None) -> Merged:
    """Join the ranks of a run into the files that one process would have written, in question order.

    May be repeated, as after a larger `limit`. Ranks that a cap stopped are joined, too: `summary.stopped` says what is
    left of it, and by which command one process finishes the run. Raises InputError for ranks that are missing,
    incomplete for another reason or of different configurations.

    Example:
        >>> for rank in ("0/2", "1/2"):
        ...     part = reasonrag.generate(dataset="atlas", limit=10, run="runs/two", shard=rank)
        >>> reasonrag.merge("runs/two").questions
        10

    Args:
        run: the folder that was given to the ranks.
        watcher: is told what happens while it goes on; none: silent.
    """

def pairs(
    runs: str | Path | Sequence[str | Path],
    *,
    chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
    watcher: Watcher | None = None,
    min_margin: float = 0.05,
    min_confidence: float = 0.7,
    min_draws: int = 1,
    max_similarity: float = 0.9,
    max_per_state: int = 4,
    max_per_question: int = 0,
    allow_malformed: bool = False,
    allow_ungrounded: bool = False,
    allow_cut_prompts: bool = False,
    allow_repeated_query: bool = False,
    allow_same_findings: bool = False,
    out: str | Path | None = None,
    replace: bool = False,
    format: Literal["proguide", "sharegpt", "kto", "reward", "sft", "sft-chosen", "trl"]
    | Sequence[Literal["proguide", "sharegpt", "kto", "reward", "sft", "sft-chosen", "trl"]] = [],
    validation: float = 0.05,
    max_efficiency_only: float = 0.1,
    max_style_only: float = 0.1,
    max_row_tokens: int = 0,
    eval: str | Sequence[str] = [],
    allow_eval: str | Sequence[str] = [],
    flip: float = 0.0,
    seed: int = 0,
    as_published: bool = False,
    tokenizer: Literal["qwen2.5", "estimate"] | None = None,
    allow: str | Sequence[str] = [],
    label: Literal["value", "judge", "outcome"] = "value",
    model: str | None = None,
    base_url: str | Sequence[str] = [],
    max_reply_tokens: int = 512,
    extra_body: str | Mapping[str, Any] | None = None,
    reasoning_effort: Literal["default", "none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None,
    consensus: bool = False,
    critic: str | Path | Sequence[str | Path] = [],
    critic_threshold: float = 0.0,
    allow_critic: bool = False,
    judge_gold: bool = False,
    prompts: str | Path | None = None,
    concurrency: int = 32,
    max_cost: float | None = None,
    max_calls: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
) -> PairSummary:
    """Turn the sibling steps of runs into a preference data set.

    Raises InputError where a source cannot be read, and where `out` cannot be written, is being written, or holds a
    data set made from other runs and `replace` is not given; AuditFailed where rows have errors that `allow` does
    not name (all files then stay as they were); and of a judge what `label_by_judge` does.

    Example:
        >>> data = reasonrag.pairs("runs/first", out="data/first")
        >>> data.pairs > 0
        True

    Args:
        runs: run directories, rollouts files, and directories of data sets, which have candidates.jsonl.
        chat_model: the judge of `label="judge"`, used instead of the one that the settings would open.
        critic_model: a critic that was trained on none of the questions, used instead of those that the settings name;
            its replies are numbers.
        watcher: is told what happens while it goes on; none: silent.
        min_margin: Minimum difference between the rewards of the two steps
        min_confidence: Minimum probability that the chosen step is really the better one
        min_draws: Minimum effective sample size of each step, unless both are answers
        max_similarity: Maximum share of words that the two steps have in common; 1: no limit
        max_per_state: Maximum pairs per state, highest confidence first; 0: no limit
        max_per_question: Maximum pairs per question, highest confidence first; 0: no limit
        allow_malformed: Accept unparsable replies as rejected steps
        allow_ungrounded: Accept chosen steps that no passage supports
        allow_cut_prompts: Accept pairs of states whose prompt the endpoint cut
        allow_repeated_query: Accept chosen queries that repeat an earlier one on their path
        allow_same_findings: Accept pairs of steps that reveal the same, although their continuations do not tell
            them apart
        out: Folder of the data set [default: data/<name of the run>]
        replace: Replace a data set that was made from other runs
        format: Also write this format: sharegpt, kto, reward, sft, sft-chosen or trl; repeatable. RAG_ProGuide is
            always written
        validation: Share of questions with a pair to hold out for validation; 0: none
        max_efficiency_only: Maximum share of pairs that differ only in the number of steps to the answer; 1: no
            limit
        max_style_only: Maximum share of answer pairs that differ only in style (equal by cover-EM); 1: no limit
        max_row_tokens: Maximum tokens of prompt and reply together; 0: no limit
        eval: Leave out questions found in this evaluation split: a question file, a folder with
            <dataset>/<split>.jsonl, or hub for FlashRAG's; repeatable [default: the splits beside the data of the
            runs]
        allow_eval: Keep questions found in this evaluation split: dataset/split, or all; repeatable
        flip: Share of training pairs whose sides are swapped, to study label noise
        seed: Seed of the validation split, of --flip, and of the order of steps shown to a judge (another seed asks
            the judge again)
        as_published: Label and filter as the published system whose recipe made the runs (ReasonRAG, ProRAG,
            RAG-Gym) does, without the filters above
        tokenizer: How tokens are counted: qwen2.5 or estimate, four characters a token [default: qwen2.5 if the
            tokens extra is installed, else estimate]
        allow: Write the data set despite this audit error, by its name; repeatable
        label: Source of the labels: value (rewards of the search; free), judge (--model picks a better and a worse
            step of each state, or none) or outcome (of the one trajectory in which a step was first drawn; free)
        model: Judge, for --label judge: a model name at the endpoint, or offline
        base_url: OpenAI-compatible endpoint of the judge; repeat to spread the load over several [default:
            OPENAI_BASE_URL, else OpenAI's]
        max_reply_tokens: Maximum tokens per completion of the judge, reasoning tokens included
        extra_body: JSON object of extra fields for every request to the judge
        reasoning_effort: How much the model reasons before it answers, billed as completion tokens: none, minimal,
            low, medium, high, xhigh or max, of which a model takes some; default sends nothing [default: none where
            the trial request shows that the model reasons and takes that]
        consensus: Keep a pair only if a second witness agrees: the values, with --label judge; else the critics
        critic: Critic, a folder or a URL: a witness of --consensus; with --format sft it keeps only paths whose
            every step scores --critic-threshold. Repeatable: none judges a question that it was trained on
            (train-critic --folds)
        critic_threshold: Lowest raw score of a step of a path
        allow_critic: Use critics although they failed their evaluation, or were trained on other prompts
        judge_gold: Show the judge the gold answers
        prompts: Folder with your own prompts; the judge's is pick.txt
        concurrency: HTTP requests in flight
        max_cost: Stop before the judge costs more than this many dollars
        max_calls: Stop before the judge uses more than this many completions
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the list price]
        price_out: Dollars per million completion tokens [default: the list price]
    """

def publish(
    directory: str | Path | None = None,
    *,
    dry_run: bool = False,
    say: Callable[[str], None] = ...,
    repo: str,
    private: bool | None = None,
    with_trees: str | Path | Sequence[str | Path] = [],
    model: str | Path | None = None,
    base_model: str | None = None,
    license: str | None = None,
    allow: str | Sequence[str] = [],
    allow_eval: str | Sequence[str] = [],
    max_shard_mb: int = 500,
) -> Publication | ModelPublication:
    """Publish the data set in `directory`, or with `model=FOLDER` a model, with its card; private unless `public`.

    Raises InputError before anything is uploaded, UploadStopped if the upload fails: the same call resumes it.

    Example:
        >>> done = reasonrag.publish("data/first", repo="me/first", dry_run=True)
        >>> print(done.url)
        None

    Args:
        directory: a data set.
        dry_run: write `DIR/publish` and contact nothing.
        say: receives progress.
        repo: Repository on the Hub: organisation/name
        private: --public makes the repository public after the upload; --private refuses one that is public already
            [default: a new repository is private, an existing one stays as it is]
        with_trees: Also upload the search trees of this run, without paths and addresses; repeatable
        model: Publish this model folder, written by train, instead of a data set
        base_model: Name on the Hub of the model's base model, if its files name a local folder
        license: Licence by its name on the Hub [default: cc-by-sa-4.0 for data with Wikipedia passages; the licence
            in its card for a model]
        allow: Publish despite this objection, by its name; repeatable
        allow_eval: Publish questions of this evaluation split, or a model trained on them: dataset/split, or all;
            repeatable
        max_shard_mb: Maximum size of a Parquet file, in MB of JSON
    """

def review_report(directory: str | Path, judgements: str | Path | Sequence[str | Path]) -> ReviewReport:
    """Compare what people said of a sample with the labels and with each other.

    Raises InputError if there is no data set, and for a verdict that cannot be understood, with its file and row.

    Example:
        >>> found = reasonrag.review_report("data/first", "ana.csv")  # doctest: +SKIP

    Args:
        directory: the data set that the sample is of.
        judgements: the file that `review_sample` wrote with verdicts in it, or an export of Label Studio. A person is
            named by the file, or by the annotator that it names.
    """

def review_sample(directory: str | Path, out: str | Path, *, sample: int = 50, seed: int = 0) -> ReviewSample:
    """Write a sample of pairs without their labels, to be judged.

    Raises InputError for a data set that cannot be read, and for an `out` that exists or cannot be written.

    Example:
        >>> reasonrag.review_sample("data/first", "sample.csv", sample=5).sampled
        5

    Args:
        directory: a data set.
        out: a file for a spreadsheet (`.csv`) or for Label Studio (`.json`).
        sample: number of pairs; a larger sample contains every smaller one.
        seed: of the sample, and of which reply is shown as A.
    """

def search(
    place: Path | str,
    query: str,
    *,
    top_k: int = 3,
    say: Callable[[str], None] = ...,
    index_home: str | Path = ...,
    language: str | Sequence[str] = [],
    encoder: str | None = None,
    index_type: Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"] | None = None,
    reranker: str | None = None,
    gpu: bool = False,
) -> SearchResult:
    """Search an index, or a corpus, whose index is built if missing. Raises InputError if it is neither.

    Example:
        >>> [each.title for each in reasonrag.search("indexes/handbook", "14 months").passages]
        ['Leave > Parents']

    Args:
        place: directory of an index, file of a corpus, or address of a retrieval server.
        query: what to search for.
        top_k: most passages to find.
        say: told when an index is built.
        index_home: Folder of indexes that are built without --index
        language: Language of the corpus, for BM25: a code like de; repeat for several [default: detected]
        encoder: Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) [default: the
            index's own, else minilm]
        index_type: faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]
        reranker: Cross-encoder that reranks passages: a folder or a name on the Hub
        gpu: Search dense indexes on GPUs; needs the index-gpu extra
    """

def show(run: str | Path, question_id: str | None, *, trees: str | Path | Sequence[str | Path] = []) -> QuestionView:
    """Everything about one question: its trees step by step, its pairs, and why each was labelled so.

    The pairs of a run are those that the default filters would keep; caps on the whole data set are not applied.
    Raises InputError if the question is not there.

    Example:
        >>> seen = reasonrag.show("runs/first", "atlas_train_0_5")
        >>> seen.question
        'Who was born first, Bam Traecel or Bex Traecel?'

    Args:
        run: a run directory, or a data set.
        question_id: as in the question file.
        trees: Run that a data set was made from, if it was moved; repeatable [default: from the summary of the data
            set]
    """

def stats(path: str | Path, *, watch: Callable[[float], None] | None = None) -> Overview:
    """What a run or a data set holds, in numbers.

    The pairs of a run are those that `reasonrag pairs` makes with its default filters, without decontamination.
    Raises InputError if `path` is neither, or a line cannot be read.

    Example:
        >>> reasonrag.stats("runs/first").questions
        10

    Args:
        path: a run directory or a data set.
        watch: is told the share of the work that is done.
    """

def train(
    config: str | Path | None = None,
    *,
    dry_run: bool = False,
    watcher: TrainingWatcher | None = None,
    recipe: Literal["sft-dpo"] | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    set: str | Sequence[str] = [],
    prompts: str | Path | None = None,
    allow: str | Sequence[str] = [],
    allow_eval: str | Sequence[str] = [],
    nodes: int = 1,
    node_rank: int | None = None,
    master: str | None = None,
    gpus_per_node: int | None = None,
    slurm: str | Path | None = None,
    merge: str | Path | None = None,
) -> TrainingResult:
    """Train a model on a data set with LLaMA-Factory.

    Raises InputError before anything is started, TrainingFailed if LLaMA-Factory exits with an error,
    KeyboardInterrupt after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train("qwen2.5-7b-dpo-lora", data="data/first", out="saves/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the resolved configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
        recipe: Several trainings as one: sft-dpo fine-tunes on the best paths, then trains that model on the pairs
            by DPO; CONFIG is that of DPO [default: qwen2.5-7b-dpo-full]
        data: Data set to train on: a folder written by pairs. Required, unless --merge is given
        out: Folder of the trained model [default: saves/<data>-<config>]
        set: KEY=VALUE: change a key of the configuration, value as YAML; null removes the key; with --recipe,
            sft.KEY and dpo.KEY are for one training. Repeatable
        prompts: Folder with the prompts of the data, if they are your own [default: those of imported data, else
            ours]
        allow: Train despite this objection, by its name; repeatable
        allow_eval: Train on questions of this evaluation split: dataset/split, or all; repeatable
        nodes: Number of machines; give the same command on each
        node_rank: Number of this machine, from 0 [default: 0 if there is one machine]
        master: HOST or HOST:PORT of the machine with --node-rank 0 [default port: 29500]
        gpus_per_node: Processes per machine, one per GPU [default: all GPUs]
        slurm: Write a Slurm batch script to this file; do not train
        merge: Merge this adapter into its base model, into --out; do not train
    """

def train_critic(
    config: str | Path | None = None,
    *,
    dry_run: bool = False,
    watcher: TrainingWatcher | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    set: str | Sequence[str] = [],
    folds: int | None = None,
    prompts: str | Path | None = None,
    allow: str | Sequence[str] = [],
    allow_eval: str | Sequence[str] = [],
) -> CriticResult:
    """Train a critic, a model that scores steps, on a data set with TRL.

    Raises InputError before anything is started, TrainingFailed if the training exits with an error, KeyboardInterrupt
    after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train_critic("qwen2.5-7b", data="data/first", out="critics/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
        data: Data set to train on: a folder written by pairs. Required
        out: Folder of the critic [default: critics/<data>]
        set: KEY=VALUE: change a key of the configuration, value as YAML; null removes the key. Repeatable
        folds: Number of critics to train, each without the questions of one fold, in fold-1, fold-2, .. of --out:
            witnesses for pairs --consensus
        prompts: Folder with the prompts of the data, if they are your own [default: those of imported data, else
            ours]
        allow: Train despite this objection, by its name; repeatable
        allow_eval: Train on questions of this evaluation split: dataset/split, or all; repeatable
    """

def tune(
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    run: str | Path,
    pilot: int = 30,
    vary: str | Sequence[str] = [],
    min_confidence: float = 0.7,
    index: str | Path | Sequence[str | Path] = [],
    index_home: str | Path = ...,
    dataset: str | Sequence[str] = [],
    split: str = "train",
    sample: int | None = None,
    data_dir: str | Path | None = None,
    questions: str | Path | None = None,
    corpus: str | Path | None = None,
    model: str | None = None,
    base_url: str | Sequence[str] = [],
    concurrency: int = 32,
    seed: int = 0,
    max_cost: float | None = None,
    max_calls: int | None = None,
    yes: bool = False,
    price_in: float | None = None,
    price_out: float | None = None,
    recipe: str = "economy",
    set: str | Sequence[str] = [],
    outcome: Literal["f1", "em", "evident_f1", "builder_f1", "prorag_f1", "choice", "judge", "rubric"] | None = None,
) -> Tuning:
    """Try recipes on the first questions, and find the one that gives the most right pairs for its cost.

    The settings of `generate` make the base; they come from where `generate` has them, table [generate] included, which
    may hold others than those here. Caps apply to all trials and sessions together; what stopped the trials early is in
    the result, and the same call resumes them. Raises InputError, StorageError and KeyboardInterrupt as `generate`.

    Example:
        >>> tuned = reasonrag.tune(
        ...     dataset="atlas", model="offline", pilot=4, vary=["search.siblings=3,6"], run="runs/tune"
        ... )
        >>> len(tuned.trials)
        3

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        run: Directory of the trials; interrupted ones found there are continued
        pilot: Questions to try every recipe on: the first N
        vary: KEY=VALUE,VALUE,..: value of the recipe to vary, as in search.siblings=3,4,6; repeatable [default:
            max_calls, siblings, continuations and exploration of the search, temperature and max_steps of the
            agent, as far as the recipe uses them]
        min_confidence: Minimum confidence of the pairs that count
        index: Index to search, or where to build it; repeat for hybrid
        index_home: Folder of indexes that are built without --index
        dataset: Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the built-in
            atlas, or a folder of --data-dir; generate and tune mix several if it is repeated [default: atlas]
        split: Split of the data set
        sample: Draw N questions per data set at random, stratified by question type; --seed decides which. A later
            session may raise it
        data_dir: Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on
            the Hub]
        questions: Your own questions (JSONL), instead of --dataset
        corpus: Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the data set's corpus,
            else the passages in the question file]
        model: Teacher: a model name at the endpoint, or offline [default: offline for atlas; otherwise gpt-4o if
            OPENAI_API_KEY is set, else required]
        base_url: OpenAI-compatible endpoint; repeat to spread the load over several [default: OPENAI_BASE_URL, else
            OpenAI's]
        concurrency: HTTP requests in flight per model
        seed: Seed of the run
        max_cost: Stop before the run costs more than this many dollars
        max_calls: Stop before the run uses more than this many completions
        yes: Without --max-cost: start without asking or warning about the cost
        price_in: Dollars per million prompt tokens [default: the list price]
        price_out: Dollars per million completion tokens [default: the list price]
        recipe: Search and labels: economy, reasonrag, continuation, released, prorag, ragym, or a YAML file that
            holds the values of one; see docs/reference/recipes.md
        set: KEY=VALUE: change a value of the recipe, as in search.siblings=6, search.simulations=32,
            search.max_calls=64 or reward=outcome; repeatable. docs/reference/recipes.md lists them
        outcome: Score of an answer: f1, em, evident_f1 (f1, but 0 if no earlier evidence supports the answer),
            builder_f1, prorag_f1 (as the published codes compute it), choice (1 if it names the right one of
            metadata.choices), judge or rubric. With judge and rubric the teacher scores, and gold answers are not
            needed; these calls are not in search.max_calls [default: the recipe's]
    """

def view(
    path: str | Path,
    *,
    watch: Callable[[float], None] | None = None,
    trees: str | Path | Sequence[str | Path] = [],
    out: str | Path | None = None,
    max_mb: int = 64,
    port: int = 8766,
) -> Path:
    """Write the page of a run or a data set, and return where it is.

    Raises InputError if `path` is neither, or if a file cannot be read or written.

    Example:
        >>> print(reasonrag.view("data/first"))
        data/first/view.html

    Args:
        path: a run directory or a data set.
        watch: is told the share of the work that is done.
        trees: Run that a data set was made from, if it was moved; repeatable [default: from the summary of the data
            set]
        out: Page to write [default: view.html in the folder shown]
        max_mb: Maximum size of the page, in MB; a page of a larger set lists all questions and holds the trees of a
            sample
        port: Port of --serve; 0 picks a free one
    """
