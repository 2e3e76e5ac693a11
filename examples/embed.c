/* embed.c - trains a run from a program of your own and prints the loss of every step.
 *
 *     cc embed.c -o embed $(pkg-config --cflags --libs strait)
 *     ./embed RUN.yaml */
#include <strait/strait.h>

#include <signal.h>
#include <stdio.h>

static strait_err train(const struct strait_run *run) {
    struct strait_trainer *trainer = NULL;
    strait_trainer_report report;
    int64_t n_steps = 0;
    strait_err err = strait_run_get_int(run, "train.steps", &n_steps);
    if (err == STRAIT_OK) err = strait_trainer_open(run, &trainer);
    for (int64_t step = 0; err == STRAIT_OK && step < n_steps; step++) {
        err = strait_trainer_step(trainer, &report);
        if (err == STRAIT_OK) printf("%lld %.9g\n", (long long)report.step, report.loss);
    }
    strait_trainer_close(&trainer);
    return err;
}

int main(int argc, char **argv) {
    struct strait_run *run = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: embed RUN.yaml\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN); // a stage that ends is an error of the next step, not a signal
    strait_err err = strait_run_load(argv[1], NULL, 0, &run);
    if (err == STRAIT_OK) err = train(run);
    strait_run_close(&run);
    if (err != STRAIT_OK) fprintf(stderr, "embed: %s\n", strait_err_detail());
    return err == STRAIT_OK ? 0 : 1;
}
