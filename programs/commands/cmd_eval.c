/* cmd_eval.c - strait eval DIR --text FILE | --data FILE.bin | --tasks FILE.jsonl */
#include <strait/model.h>
#include <strait/trainer.h>

#include "codec_note.h"
#include "commands.h"
#include "files.h"
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *text_path, *field, *data_path, *tasks_path, *tokenizer_path, *precision;
static const char *device = "auto";
static int as_json, as_run;
static int64_t threads;

static const strait_flag flags[] = {
    {"text", 0, STRAIT_FLAG_TEXT, &text_path, "FILE",
     "score a text file or JSON Lines, compressed or not"},
    {"field", 0, STRAIT_FLAG_TEXT, &field, "KEY",
     "the key of the text in JSON Lines (default text)"},
    {"data", 0, STRAIT_FLAG_TEXT, &data_path, "FILE.bin", "score token shards"},
    {"tasks", 0, STRAIT_FLAG_TEXT, &tasks_path, "FILE.jsonl",
     "answer multiple-choice questions: objects with context, choices and answer"},
    {"tokenizer", 0, STRAIT_FLAG_TEXT, &tokenizer_path, "FILE",
     "tokenizer.json (default: the one in the run's folder)"},
    {"threads", 0, STRAIT_FLAG_INT, &threads, "N", "threads (default 0: one per core)"},
    {"device", 0, STRAIT_FLAG_TEXT, &device, "KIND",
     "compute on cpu, cuda, or auto: cuda where there is one (default auto)"},
    {"precision", 0, STRAIT_FLAG_TEXT, &precision, "P",
     "fp32, bf16, or auto: bf16 on cuda (default auto)"},
    {"as-run", 0, STRAIT_FLAG_SWITCH, &as_run, NULL,
     "score --data as the run validates: with its batches and stages, from its run.yaml"},
    {"json", 0, STRAIT_FLAG_SWITCH, &as_json, NULL, "print one JSON object"},
    {0},
};

/* Shown only on a terminal: standard error of scripts stays empty. */
static void show(void *user, int64_t n_done, int64_t n_total) {
    strait_progress_show(user, 0, 0, "scored %lld of %lld tokens", (long long)n_done,
                         (long long)n_total);
}

static void show_choices(void *user, int64_t n_done, int64_t n_total) {
    strait_progress_show(user, 0, 0, "scored %lld of %lld choices", (long long)n_done,
                         (long long)n_total);
}

/* JSON has no value for numbers that are not finite. */
static const char *real_or_null(double value, char text[32]) {
    (void)snprintf(text, 32, isfinite(value) ? "%.9g" : "null", value);
    return text;
}

/* Nine digits in JSON identify the bits of a float; people get fewer. */
static void print_score(const strait_model_score *score, int64_t step) {
    char numbers[2][32];
    const double loss = score->loss_sum / (double)score->n_tokens;
    if (as_json)
        printf("{\"loss\": %s, \"perplexity\": %s, \"tokens\": %lld, \"step\": %lld}\n",
               real_or_null(loss, numbers[0]), real_or_null(exp(loss), numbers[1]),
               (long long)score->n_tokens, (long long)step);
    else
        printf("loss %.6f\nperplexity %.4f\ntokens %lld\n", loss, exp(loss),
               (long long)score->n_tokens);
}

static strait_err answer(struct strait_model *model, strait_progress *progress) {
    strait_model_accuracy a;
    STRAIT_TRY(strait_model_evaluate_tasks(model, tasks_path, show_choices, progress, &a));
    if (progress->is_open) strait_progress_show(progress, 0, 1, "scored");
    if (as_json)
        printf("{\"acc\": %.6f, \"acc_stderr\": %.6f, \"acc_norm\": %.6f, "
               "\"acc_norm_stderr\": %.6f, \"questions\": %lld}\n",
               a.acc, a.acc_error, a.acc_norm, a.acc_norm_error, (long long)a.n_questions);
    else
        printf("acc %.4f +- %.4f\nacc_norm %.4f +- %.4f\nquestions %lld\n", a.acc, a.acc_error,
               a.acc_norm, a.acc_norm_error, (long long)a.n_questions);
    return STRAIT_OK;
}

/* Only the command knows the flag that names a tokenizer, so it adds it to the error. */
static strait_err evaluate(struct strait_model *model) {
    const strait_text_spec text = {.paths = &text_path, .n_paths = 1, .field = field};
    strait_progress progress;
    strait_model_info info;
    strait_model_score score = {0};
    strait_err err = STRAIT_OK;
    strait_progress_init(&progress);
    strait_model_describe(model, &info);
    if (info.note != NULL) strait_progress_say(&progress, "note: %s", info.note);
    if (tasks_path != NULL)
        err = answer(model, &progress);
    else if (text_path != NULL)
        err = strait_model_evaluate_text(model, &text, show, &progress, &score);
    else
        err = strait_model_evaluate_corpus(model, data_path, show, &progress, &score);
    if (err == STRAIT_ECONFIG && data_path == NULL && info.tokenizer == NULL)
        return strait_args_hint(err, "--tokenizer FILE");
    if (err != STRAIT_OK || tasks_path != NULL) return err;
    if (progress.is_open) strait_progress_show(&progress, 0, 1, "scored");
    print_score(&score, info.step);
    return STRAIT_OK;
}

/* The trainer validates on any device and with any number of stages, so the run is opened with the
 * shards as its validation data and does not train. */
static strait_err evaluate_as_run(const char *folder) {
    char file[STRAIT_FILES_PATH];
    char valid[STRAIT_FILES_PATH];
    char kind[STRAIT_FILES_PATH];
    const char *note = NULL;
    struct strait_run *run = NULL;
    struct strait_trainer *trainer = NULL;
    strait_trainer_info info;
    double loss = 0.0;
    if (data_path == NULL || tokenizer_path != NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--as-run needs --data FILE.bin, and no --tokenizer");
    STRAIT_TRY(strait_files_path(file, "%s/run.yaml", folder));
    STRAIT_TRY(strait_files_path(valid, "data.valid=%s", data_path));
    STRAIT_TRY(strait_files_path(kind, "device.kind=%s", device));
    const char *const sets[] = {valid, "data.valid_tokens=0", kind};
    /* The run's own device, unless another is named. */
    const int is_auto = strcmp(device, "auto") == 0;
    STRAIT_TRY(strait_run_load(file, sets, is_auto ? 2 : 3, &run));
    strait_err err = strait_codec_choose(run, folder, 0); // that of the run
    if (err == STRAIT_OK) err = strait_trainer_open(run, &trainer);
    if (err == STRAIT_OK) err = strait_trainer_load(trainer, folder, &note);
    if (err == STRAIT_OK && note != NULL) fprintf(stderr, "note: %s\n", note);
    if (err == STRAIT_OK) err = strait_trainer_validate(trainer, &loss);
    if (err == STRAIT_OK) {
        strait_trainer_describe(trainer, &info);
        const strait_model_score score = {loss * (double)info.valid_tokens, info.valid_tokens};
        print_score(&score, strait_trainer_step_count(trainer));
    }
    strait_trainer_close(&trainer);
    strait_run_close(&run);
    return err;
}

/* Exactly one input: a loss over two would be a loss of nothing in particular. */
static strait_err run_eval(int n_args, const char **args) {
    STRAIT_TRY(strait_args_expect_one(&strait_cmd_eval, "run or checkpoint folder",
                                      "name what to score with --text, --data or --tasks", n_args,
                                      args));
    if ((text_path != NULL) + (data_path != NULL) + (tasks_path != NULL) != 1)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "eval needs either --text FILE or --data FILE.bin or --tasks FILE.jsonl");
    STRAIT_TRY(strait_args_check_device(device, 1));
    STRAIT_TRY(strait_args_check_threads(threads));
    if (as_run) return evaluate_as_run(args[0]);
    /* Zero threads mean one per core, as everywhere. */
    const strait_model_params params = {.tokenizer = tokenizer_path,
                                        .n_threads = (int)threads,
                                        .device = device,
                                        .precision = precision};
    struct strait_model *model = NULL;
    STRAIT_TRY(strait_args_device_advice(strait_model_open(args[0], &params, &model)));
    const strait_err err = evaluate(model);
    strait_model_close(&model);
    return err;
}

const strait_command strait_cmd_eval = {
    .name = "eval",
    .usage = "DIR --text FILE | --data FILE.bin | --tasks FILE.jsonl [flags]",
    .summary = "compute the loss and perplexity of a trained model",
    .about =
        "Scores text or token shards in windows of the model's context, each on its own. DIR\n"
        "is a run's folder, whose newest undamaged checkpoint is used, or one checkpoint's.\n"
        "A note names damaged checkpoints that were skipped. --tasks answers questions instead,\n"
        "by the log-likelihood of their choices.",
    .flags = flags,
    .run = run_eval,
    .examples = (const strait_example[]){{"strait eval runs/tiny --text held-out.txt",
                                          "Prints loss and perplexity of a text."},
                                         {"strait eval runs/tiny --data corpus/valid.bin --json",
                                          "Scores token shards."},
                                         {"strait eval runs/tiny --tasks questions.jsonl",
                                          "Answers multiple-choice questions."},
                                         {0}},
};
