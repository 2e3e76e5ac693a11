#include "rig.h"

/* The loss for the present inputs. */
static double loss_of(const gradient *g) {
    double loss = 0;
    g->forward(g->rig, g->arg);
    for (size_t o = 0; o < COUNT(g->outputs); o++) {
        const int64_t n = g->outputs[o].rows * g->outputs[o].cols;
        if (g->outputs[o].data == NULL) continue;
        float *y = rig_floats(n), *d_y = rig_floats(n);
        rig_read(g->rig, g->outputs[o], y);
        rig_read(g->rig, g->d_outputs[o], d_y);
        for (int64_t i = 0; i < n; i++)
            loss += (double)y[i] * (double)d_y[i];
        free(y);
        free(d_y);
    }
    return loss;
}

static double loss_at(const gradient *g, strait_tensor x, float *values, int64_t i, float by) {
    const float saved = values[i];
    values[i] = saved + by;
    rig_write(g->rig, x, values);
    const double loss = loss_of(g);
    values[i] = saved;
    rig_write(g->rig, x, values);
    return loss;
}

void check_gradient(const gradient *g, strait_tensor x, strait_tensor d_x, const char *what) {
    const int64_t n = x.rows * x.cols, places = rig_is_quick() ? 15 : 60,
                  step = n > places ? n / places : 1;
    const float h = 0x1p-7f; // fourth-order differences: wide enough for f32
    float *values = rig_floats(n), *made = rig_floats(n);
    rig_read(g->rig, x, values);
    rig_read(g->rig, d_x, made);
    double remote = 0, size = 0;
    for (int64_t i = 0; i < n; i += step) {
        const double near = loss_at(g, x, values, i, h) - loss_at(g, x, values, i, -h);
        const double far = loss_at(g, x, values, i, 2 * h) - loss_at(g, x, values, i, -2 * h);
        const double slope = (8 * near - far) / (12 * (double)h);
        remote += (slope - (double)made[i]) * (slope - (double)made[i]);
        size += slope * slope;
    }
    free(values);
    free(made);
    if (!(size > 0)) fail_msg("%s: the loss does not depend on it", what);
    if (!(sqrt(remote) <= 1e-3 * sqrt(size)))
        fail_msg("%s: gradient is off by %.3g of its norm", what, sqrt(remote / size));
}
