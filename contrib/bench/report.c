/* A table to read and JSON to keep. See bench.h. */
#include "contrib/bench/bench.h"

#include "core/buf.h"
#include "core/clock.h"
#include "core/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER = 32,
    JSON_MAX = 1 << 20,
    MS = 1000, /* Microseconds. */
    KIB = 1024,
};

static void add(struct report *report, const struct latency *latency)
{
    if (report->latency_count < ROWS_MAX) {
        report->latencies[report->latency_count++] = *latency;
    }
}

void report_latency(struct report *report, const char *name, double us,
                    double bound)
{
    add(report,
        &(const struct latency){.name = name, .us = us, .bound = bound});
}

void report_bytes(struct report *report, const char *name, double bytes,
                  double bound)
{
    add(report, &(const struct latency){
                    .name = name, .us = bytes, .bound = bound, .bytes = true});
}

double ratio_of(const struct result *result, size_t target)
{
    return result->us[target] / result->us[0];
}

double mean_of(const struct report *report, size_t target)
{
    double sum = 0;
    unsigned count = 0;

    for (size_t i = 0; i < report->count; i++) {
        double ratio = ratio_of(&report->results[i], target);

        if (!isnan(ratio)) {
            sum += log(ratio);
            count++;
        }
    }
    return count ? exp(sum / count) : NAN;
}

/* ---- The table ---- */

static void print_cell(FILE *out, const struct target *target, double ratio)
{
    int width = (int)strlen(target->name) < 8 ? 8 : (int)strlen(target->name);

    if (isnan(ratio)) {
        (void)fprintf(out, "  %*s", width, "fails");
    } else {
        (void)fprintf(out, "  %*.2f", width, ratio);
    }
}

static unsigned rounds_beside(const struct report *report)
{
    return report->rounds < report->scale->beside ? report->rounds
                                                  : report->scale->beside;
}

static void print_head(const struct report *report, FILE *out)
{
    for (size_t i = 0; i < report->note_count; i++) {
        (void)fprintf(out, "%s\n", report->notes[i]);
    }
    (void)fprintf(out,
                  "medians of %u rounds, with others %u; ratios to %s\n\n"
                  "%-13s %9s ms",
                  report->rounds, rounds_beside(report),
                  report->targets[0].name, "workload", report->targets[0].name);
    for (size_t i = 1; i < report->target_count; i++) {
        (void)fprintf(out, "  %8s", report->targets[i].name);
    }
    (void)fprintf(out, "\n");
}

static void print_value(FILE *out, const struct latency *latency)
{
    if (isnan(latency->us)) {
        (void)fprintf(out, " %9s   ", "-");
    } else if (latency->bytes) {
        (void)fprintf(out, " %9.1f KiB", latency->us / KIB);
    } else {
        (void)fprintf(out, " %9.3f ms", latency->us / MS);
    }
}

static void print_latencies(const struct report *report, FILE *out)
{
    for (size_t i = 0; i < report->latency_count; i++) {
        const struct latency *latency = &report->latencies[i];

        (void)fprintf(out, "%s%-32s", i ? "" : "\n", latency->name);
        print_value(out, latency);
        if (latency->bound > 0) {
            (void)fprintf(out, "  <= %.3f%s",
                          latency->bound / (latency->bytes ? KIB : MS),
                          latency->us > latency->bound ? "  over" : "");
        }
        (void)fprintf(out, "\n");
    }
}

void report_table(const struct report *report, FILE *out)
{
    print_head(report, out);
    for (size_t i = 0; i < report->count; i++) {
        const struct result *result = &report->results[i];

        (void)fprintf(out, "%-13s %12.3f", result->row->name,
                      result->us[0] / MS);
        for (size_t k = 1; k < report->target_count; k++) {
            print_cell(out, &report->targets[k], ratio_of(result, k));
        }
        (void)fprintf(out, "\n");
    }
    if (report->count) {
        (void)fprintf(out, "%-26s", "geometric mean");
        for (size_t k = 1; k < report->target_count; k++) {
            print_cell(out, &report->targets[k], mean_of(report, k));
        }
        (void)fprintf(out, "\n");
    }
    print_latencies(report, out);
}

/* ---- JSON ---- */

static void set_number(struct js *js, const char *key, double value)
{
    char text[NUMBER];

    if (isnan(value)) {
        js_set_null(js, key);
    } else {
        (void)snprintf(text, sizeof(text), "%.3f", value);
        js_set_raw(js, key, text);
    }
}

static struct js *numbers(const struct report *report,
                          const struct result *result, bool ratios)
{
    struct js *js = js_object();

    for (size_t k = 0; k < report->target_count; k++) {
        set_number(js, report->targets[k].name,
                   ratios ? ratio_of(result, k) : result->us[k]);
    }
    return js;
}

static struct js *samples(const struct report *report,
                          const struct result *result)
{
    struct js *js = js_object();

    for (size_t k = 0; k < report->target_count; k++) {
        js_set_int(js, report->targets[k].name, result->samples[k]);
    }
    return js;
}

static struct js *all_rows(const struct report *report)
{
    struct js *rows = js_object();

    for (size_t i = 0; i < report->count; i++) {
        const struct result *result = &report->results[i];
        struct js *js = js_object();

        js_set_text(js, "what", result->row->what);
        js_set(js, "us", numbers(report, result, false));
        js_set(js, "ratio", numbers(report, result, true));
        js_set(js, "samples", samples(report, result));
        js_set(rows, result->row->name, js);
    }
    return rows;
}

static struct js *all_means(const struct report *report)
{
    struct js *js = js_object();

    for (size_t k = 0; k < report->target_count; k++) {
        set_number(js, report->targets[k].name, mean_of(report, k));
    }
    return js;
}

static struct js *all_latencies(const struct report *report, bool bytes)
{
    struct js *js = js_object();

    for (size_t i = 0; i < report->latency_count; i++) {
        const struct latency *latency = &report->latencies[i];

        if (latency->bytes == bytes) {
            set_number(js, latency->name, latency->us);
        }
    }
    return js;
}

static struct js *all_notes(const struct report *report)
{
    struct js *js = js_object();

    for (size_t i = 0; i < report->note_count; i++) {
        const char *note = report->notes[i];
        const char *value = strchr(note, '=');
        char key[NUMBER];

        (void)snprintf(key, sizeof(key), "%.*s", (int)(value - note), note);
        js_set_text(js, key, value + 1);
    }
    return js;
}

int report_json(const struct report *report, const char *path)
{
    struct js *js = js_object();
    struct buf text;
    FILE *file;
    int rc;

    buf_init(&text, JSON_MAX);
    js_set_time(js, "time", clock_wall_us());
    js_set(js, "machine", all_notes(report));
    js_set_int(js, "rounds", report->rounds);
    js_set_int(js, "rounds_beside", rounds_beside(report));
    js_set_text(js, "base", report->targets[0].name);
    js_set(js, "workloads", all_rows(report));
    js_set(js, "geometric_mean", all_means(report));
    js_set(js, "latency_us", all_latencies(report, false));
    js_set(js, "bytes", all_latencies(report, true));
    rc = js_write_lines(js, &text);
    js_free(js);
    file = rc == 0 ? fopen(path, "we") : NULL;
    rc = file && fprintf(file, "%s\n", buf_str(&text)) > 0 ? 0 : -EIO;
    buf_done(&text);
    return file && fclose(file) != 0 ? -EIO : rc;
}
