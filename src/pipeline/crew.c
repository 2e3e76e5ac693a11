#include "pipeline/crew.h"

#include "base/alloc.h"

#include <math.h>

strait_err strait_crew_open(strait_crew_choice choice, const strait_run *run,
                            const strait_recipe *recipe, struct strait_feed *feed,
                            struct strait_crew **out) {
    struct strait_crew *crew = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *crew, "crew", (void **)&crew));
    crew->ops = choice.ops;
    if (crew->ops == NULL)
        crew->ops = recipe->n_stages > 1 ? &strait_crew_apart : &strait_crew_solo;
    crew->user = choice.user;
    crew->run = *run;
    crew->recipe = *recipe;
    crew->feed = feed;
    strait_err err = strait_alloc(1, crew->ops->state_size, "crew", &crew->state);
    if (err == STRAIT_OK) err = crew->ops->open(crew);
    if (err != STRAIT_OK) {
        strait_crew_close(&crew);
        return err;
    }
    *out = crew;
    return STRAIT_OK;
}

void strait_crew_close(struct strait_crew **crew) {
    struct strait_crew *c = *crew;
    if (c == NULL) return;
    if (c->state != NULL) c->ops->close(c);
    strait_alloc_free(c->state);
    strait_alloc_free(c);
    *crew = NULL;
}

double strait_crew_norm(const float *squares, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += (double)squares[i];
    return sqrt(sum);
}

float strait_crew_factor(double limit, double norm) {
    return limit > 0.0 && norm > limit ? (float)(limit / norm) : 1.0f;
}
