/* statistics.h - means and confidence intervals of a few repeated measurements. */
#pragma once

typedef struct strait_estimate {
    int n;
    double mean;
    double deviation; // standard deviation of the values, by n - 1; NaN where n < 2
    double half;      // half the width of the 95% confidence interval of the mean; NaN where n < 2
} strait_estimate;

/* Mean and 95% interval of `n` values by Student's t distribution; n = 0 gives NaN. */
strait_estimate strait_estimate_mean(const double *values, int n);

/* The same of the differences a[i] - b[i]: measurements of one pair share their seed, so what the
 * seed changes in both cancels. */
strait_estimate strait_estimate_paired(const double *a, const double *b, int n);

/* The quantile of Student's t distribution with `freedom` > 0 degrees of freedom, for a probability
 * between 0.5 and 1. */
double strait_student_quantile(double probability, double freedom);
