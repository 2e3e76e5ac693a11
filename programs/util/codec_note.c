#include "codec_note.h"

#include <strait/trainer.h>

#include "config/run_auto.h"
#include "config/run_changes.h"
#include "train/outlook/choose.h"

#include <stdio.h>
#include <string.h>

enum {
    LIST_BYTES = 512
};

/* Keys of the model and of learning rates that have another value because of the codec. */
static void list_change(void *user, const char *key, const char *without, const char *with,
                        int is_derived) {
    char *list = user;
    const size_t used = strlen(list);
    (void)without;
    (void)is_derived;
    if (strncmp(key, "model.", 6) != 0 && strncmp(key, "train.", 6) != 0) return;
    (void)snprintf(list + used, LIST_BYTES - used, "%s%s=%.40s", used > 0 ? ", " : "", key, with);
}

/* The same run with exact boundaries tells what the codec adds. Errors are found, and reported,
 * when the run is opened. */
void strait_codec_note(const struct strait_run *run) {
    static strait_run plain; // large
    static strait_trainer_info with, without;
    char list[LIST_BYTES] = "";
    if (run->dropped[0] != '\0')
        fprintf(stderr, "note: link.codec.name was overridden: dropped %s of the run file\n",
                run->dropped);
    if (run->stages.count < 2 || strcmp(run->link.codec.name, "none") == 0) return;
    plain = *run;
    if (strait_run_set(&plain, "link.codec.name", "none") != STRAIT_OK ||
        strait_trainer_plan(run, &with) != STRAIT_OK ||
        strait_trainer_plan(&plain, &without) != STRAIT_OK)
        return;
    strait_run_compare(&plain, run, list_change, list);
    if (with.parameters == without.parameters && list[0] == '\0') return;
    fprintf(
        stderr,
        "note: codec %s changes the model: %.2fM parameters, %.2fM without it%s%s; compare with "
        "a dense run that has the same additions\n",
        run->link.codec.name, (double)with.parameters / 1e6, (double)without.parameters / 1e6,
        list[0] != '\0' ? "; it sets " : "", list);
}

strait_err strait_codec_choose(struct strait_run *run, const char *folder, int is_swarm) {
    const strait_choose_params params = is_swarm ? (strait_choose_params){.is_swarm = 1}
                                                 : strait_choose_locally(run);
    char text[STRAIT_CHOICE_TEXT];
    if (is_swarm) STRAIT_TRY(strait_run_default_to_auto(run));
    STRAIT_TRY(strait_choose_in(run, folder, &params, text));
    if (text[0] != '\0') fprintf(stderr, "%s\n", text);
    return STRAIT_OK;
}
