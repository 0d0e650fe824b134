/*
 * The ratios as a chart: a line a workload, a dot a target, on a logarithmic
 * axis. See bench.h.
 */
#include "contrib/bench/bench.h"

#include <errno.h>
#include <math.h>

enum {
    WIDTH = 860,
    LEFT = 110,
    RIGHT = 20,
    LEGEND = 34,
    TOP = 74,
    LINE = 18,
    BOTTOM = 34,
    LEGEND_STEP = 130,
    MIDDLE = 4, /* From a line's middle to its text's ground. */
};

static const double axis_least = 0.5;

static const double ticks[] = {0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500};

static const char *const colors[TARGETS_MAX] = {
    "#888888", "#bbbbbb", "#d62728", "#1f77b4", "#2ca02c", "#9467bd",
    "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#bcbd22", "#000000",
};

struct axis {
    double most;
    int bottom;
};

static double place(const struct axis *axis, double ratio)
{
    double part = log(ratio / axis_least) / log(axis->most / axis_least);

    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static struct axis fit_axis(const struct report *report)
{
    struct axis axis = {
        .most = 2,
        .bottom = TOP + LINE * ((int)report->count + 2),
    };

    for (size_t i = 0; i < report->count; i++) {
        for (size_t k = 0; k < report->target_count; k++) {
            double ratio = ratio_of(&report->results[i], k);

            axis.most = ratio > axis.most ? ratio : axis.most;
        }
    }
    axis.most *= 1.1;
    return axis;
}

static void draw_text(FILE *out, double x, double y, const char *anchor,
                      const char *text)
{
    (void)fprintf(out,
                  "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                  x, y, anchor, text);
}

static void draw_dot(FILE *out, double x, double y, size_t target)
{
    (void)fprintf(out,
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\""
                  " fill-opacity=\"0.85\"/>\n",
                  x, y, colors[target]);
}

static void draw_legend(const struct report *report, FILE *out)
{
    int columns = (WIDTH - LEFT) / LEGEND_STEP;

    for (size_t k = 0; k < report->target_count; k++) {
        int row = (int)k / columns;
        double x = LEFT + ((int)k - row * columns) * LEGEND_STEP;
        double y = LEGEND + row * LINE;

        draw_dot(out, x, y, k);
        draw_text(out, x + 9, y + MIDDLE, "start", report->targets[k].name);
    }
}

static void draw_axis(const struct axis *axis, FILE *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(ticks) && ticks[i] <= axis->most; i++) {
        double x = place(axis, ticks[i]);
        char text[16];

        (void)fprintf(out, "<path d=\"M%.1f %d V%d\" stroke=\"%s\"/>\n", x, TOP,
                      axis->bottom, ticks[i] == 1 ? "#888" : "#ddd");
        (void)snprintf(text, sizeof(text), "%g", ticks[i]);
        draw_text(out, x, axis->bottom + 14, "middle", text);
    }
}

static void draw_rows(const struct report *report, const struct axis *axis,
                      FILE *out)
{
    for (size_t i = 0; i <= report->count; i++) {
        bool sum = i == report->count;
        double y = TOP + LINE * (double)(i + (sum ? 1 : 0)) + LINE / 2.0;

        draw_text(out, LEFT - 8, y + MIDDLE, "end",
                  sum ? "geometric mean" : report->results[i].row->name);
        for (size_t k = report->target_count; k-- > 0;) {
            double ratio =
                sum ? mean_of(report, k) : ratio_of(&report->results[i], k);

            if (!isnan(ratio)) {
                draw_dot(out, place(axis, ratio), y, k);
            }
        }
    }
}

int report_chart(const struct report *report, const char *path)
{
    struct axis axis = fit_axis(report);
    FILE *out = fopen(path, "we");
    char text[160];
    bool bad;

    if (!out) {
        return -errno;
    }
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\""
                  " height=\"%d\" font-family=\"sans-serif\""
                  " font-size=\"11\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  WIDTH, axis.bottom + BOTTOM);
    (void)snprintf(text, sizeof(text),
                   "Time of each workload, as a multiple of that in %s"
                   " (less is better)",
                   report->targets[0].name);
    draw_text(out, LEFT, 16, "start", text);
    draw_legend(report, out);
    draw_axis(&axis, out);
    draw_rows(report, &axis, out);
    (void)fprintf(out, "</svg>\n");
    bad = ferror(out) != 0;
    return fclose(out) != 0 || bad ? -EIO : 0;
}
