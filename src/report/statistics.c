#include "report/statistics.h"

#include <math.h>
#include <stddef.h>

enum {
    FRACTION_TERMS = 300,
    BISECTIONS = 200
};

/* The continued fraction of the incomplete beta function, by Lentz's method. Terms alternate
 * between two formulas. */
static double beta_fraction(double x, double a, double b) {
    const double tiny = 1e-300;
    double c = 1.0;
    double d = 1.0 - (a + b) * x / (a + 1.0);
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    double result = d;
    for (int i = 2; i < FRACTION_TERMS; i++) {
        const double m = i / 2; // NOLINT(bugprone-integer-division): pairs of terms
        const double even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        const double term = i % 2 == 0 ? even : odd;
        d = 1.0 + term * d;
        c = 1.0 + term / c;
        d = 1.0 / (fabs(d) < tiny ? tiny : d);
        if (fabs(c) < tiny) c = tiny;
        result *= c * d;
        if (fabs(c * d - 1.0) < 1e-15) break;
    }
    return result;
}

/* The logarithm of the gamma function by Stirling's series, after moving the argument up to where
 * it converges. lgamma() of the C library writes a global variable. */
static double log_gamma(double x) {
    double shift = 0.0;
    while (x < 12.0) {
        shift -= log(x);
        x += 1.0;
    }
    const double r = 1.0 / x;
    const double series = r / 12.0 - r * r * r / 360.0 + pow(r, 5.0) / 1260.0 -
                          pow(r, 7.0) / 1680.0;
    return shift + (x - 0.5) * log(x) - x + 0.91893853320467274178 + series;
}

/* The regularised incomplete beta function; the fraction converges fast on one side of the mean
 * only, and the symmetry gives the other. */
static double incomplete_beta(double x, double a, double b) {
    if (x <= 0.0) return 0.0;
    if (x >= 1.0) return 1.0;
    const double front = exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * log(x) +
                             b * log1p(-x));
    if (x < (a + 1.0) / (a + b + 2.0)) return front * beta_fraction(x, a, b) / a;
    return 1.0 - front * beta_fraction(1.0 - x, b, a) / b;
}

/* The distribution function of Student's t for t >= 0. */
static double student_below(double t, double freedom) {
    return 1.0 - 0.5 * incomplete_beta(freedom / (freedom + t * t), 0.5 * freedom, 0.5);
}

double strait_student_quantile(double probability, double freedom) {
    double low = 0.0;
    double high = 1.0;
    while (student_below(high, freedom) < probability && high < 1e12)
        high *= 2.0;
    for (int i = 0; i < BISECTIONS && high - low > 1e-13 * high; i++) {
        const double middle = 0.5 * (low + high);
        if (student_below(middle, freedom) < probability)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* b may be NULL: the values of a themselves. Two passes, because a sum of squares alone loses the
 * digits of small deviations. */
static strait_estimate estimate(const double *a, const double *b, int n) {
    strait_estimate e = {
        .n = n, .mean = (double)NAN, .deviation = (double)NAN, .half = (double)NAN};
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < n; i++)
        sum += a[i] - (b != NULL ? b[i] : 0.0);
    if (n > 0) e.mean = sum / n;
    if (n < 2) return e;
    for (int i = 0; i < n; i++) {
        const double off = a[i] - (b != NULL ? b[i] : 0.0) - e.mean;
        squares += off * off;
    }
    e.deviation = sqrt(squares / (n - 1));
    e.half = strait_student_quantile(0.975, n - 1) * e.deviation / sqrt(n);
    return e;
}

strait_estimate strait_estimate_mean(const double *values, int n) {
    return estimate(values, NULL, n);
}

strait_estimate strait_estimate_paired(const double *a, const double *b, int n) {
    return estimate(a, b, n);
}
