/* What is known of a remote tree's names, and for how long. */
#include "core/remote_cache.h"

#include "core/clock.h"
#include "tests/cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum {
    LONG_MS = 60 * 1000,
    SHORT_MS = 100,
};

static const struct stat a_file = {.st_mode = S_IFREG | 0644, .st_size = 3};
static const struct stat a_dir = {.st_mode = S_IFDIR | 0755};

static enum remote_known find(struct remote_cache *cache, const char *path)
{
    struct stat attr;

    return remote_cache_find(cache, path, &attr);
}

/* Takes a listing of two names. */
static void list_two(struct remote_cache *cache,
                     const struct remote_moment *moment, const char *dir)
{
    const struct provider_entry a = {.name = "a", .attr = a_file};
    const struct provider_entry b = {.name = "b", .attr = a_dir};

    (void)remote_cache_begin(cache, moment, dir);
    remote_cache_add(cache, moment, dir, &a);
    remote_cache_add(cache, moment, dir, &b);
    remote_cache_whole(cache, moment, dir);
}

static int count_entry(void *arg, const struct provider_entry *entry)
{
    unsigned *n = arg;

    assert_non_null(entry->name);
    (*n)++;
    return 0;
}

static int count(struct remote_cache *cache, const char *dir, unsigned *n)
{
    *n = 0;
    return remote_cache_list(cache, dir, count_entry, n);
}

static void a_whole_listing_knows_what_is_not_there(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct remote_moment moment = remote_cache_moment(cache);
    struct stat attr;
    unsigned n;

    (void)state;
    assert_int_equal(find(cache, "d/a"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "d", &n), 0);
    list_two(cache, &moment, "d");
    assert_int_equal(remote_cache_find(cache, "d/a", &attr), REMOTE_THERE);
    assert_int_equal(attr.st_size, 3);
    assert_int_equal(find(cache, "d/c"), REMOTE_ABSENT);
    assert_int_equal(find(cache, "c"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "d", &n), 1);
    assert_int_equal(n, 2);
    remote_cache_free(cache);
}

static void nothing_holds_longer_than_its_time(void **state)
{
    struct remote_cache *cache = remote_cache_new(SHORT_MS);
    struct remote_moment moment = remote_cache_moment(cache);
    int64_t begin = clock_ms();
    bool there;
    unsigned n;

    (void)state;
    list_two(cache, &moment, "");
    remote_cache_set(cache, "c", &a_file);
    there = find(cache, "c") == REMOTE_THERE;
    assert_true(there || clock_ms() - begin >= SHORT_MS);
    assert_int_equal(usleep(2 * SHORT_MS * 1000), 0);
    assert_int_equal(find(cache, "a"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "c"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "gone"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "", &n), 0);
    remote_cache_free(cache);
}

static void a_change_ends_all_at_once(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct remote_moment moment = remote_cache_moment(cache);

    (void)state;
    list_two(cache, &moment, "d");
    remote_cache_changed(cache);
    assert_int_equal(find(cache, "d/a"), REMOTE_UNKNOWN);
    assert_int_equal(remote_cache_count(cache), 0);
    list_two(cache, &moment, "d"); /* Asked for before the change. */
    remote_cache_learn(cache, &moment, "x", &a_file);
    assert_int_equal(find(cache, "d/a"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "d/c"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "x"), REMOTE_UNKNOWN);
    remote_cache_free(cache);
}

static void an_answer_older_than_our_change_is_not_kept(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct remote_moment moment = remote_cache_moment(cache);
    struct remote_moment later;
    unsigned n;

    (void)state;
    remote_cache_set(cache, "d/a", NULL); /* Removed meanwhile. */
    list_two(cache, &moment, "d");
    remote_cache_learn(cache, &moment, "d/a", &a_file);
    assert_int_equal(find(cache, "d/a"), REMOTE_ABSENT);
    assert_int_equal(count(cache, "d", &n), 0);
    list_two(cache, &moment, "e"); /* Another directory is as it was. */
    assert_int_equal(count(cache, "e", &n), 1);
    later = remote_cache_moment(cache);
    list_two(cache, &later, "d");
    assert_int_equal(find(cache, "d/a"), REMOTE_THERE);
    remote_cache_free(cache);
}

static void a_change_within_a_listing_keeps_the_rest(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct remote_moment moment = remote_cache_moment(cache);
    struct stat attr;
    unsigned n;

    (void)state;
    list_two(cache, &moment, "");
    remote_cache_set(cache, "a", NULL);
    remote_cache_set(cache, "c", &a_file);
    remote_cache_set(cache, "b/x", &a_file); /* b has a new time, */
    assert_int_equal(remote_cache_find(cache, "b", &attr), REMOTE_THERE);
    assert_true(attr.st_mtim.tv_sec > 0);
    remote_cache_set(cache, "b/d", &a_dir); /* and then more is new. */
    assert_int_equal(find(cache, "b"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "", &n), 1);
    assert_int_equal(n, 2); /* b and c */
    remote_cache_forget(cache, "c");
    assert_int_equal(find(cache, "c"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "", &n), 0);
    remote_cache_free(cache);
}

static void what_lies_below_is_forgotten_too(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct remote_moment moment = remote_cache_moment(cache);

    (void)state;
    list_two(cache, &moment, "d");
    list_two(cache, &moment, "d/b");
    list_two(cache, &moment, "d2");
    remote_cache_forget(cache, "d");
    assert_int_equal(find(cache, "d/a"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "d/b/gone"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "d2/a"), REMOTE_THERE);
    remote_cache_empty(cache, "d");
    assert_int_equal(find(cache, "d/a"), REMOTE_ABSENT);
    remote_cache_free(cache);
}

static void memory_is_bounded(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct provider_entry entry = {.attr = a_file};
    struct remote_moment moment = remote_cache_moment(cache);
    char dir[32], name[32];
    unsigned n;

    (void)state;
    entry.name = name;
    for (unsigned d = 0; d < 200; d++) {
        (void)snprintf(dir, sizeof(dir), "d%u", d);
        (void)remote_cache_begin(cache, &moment, dir);
        for (unsigned i = 0; i < 1000; i++) {
            (void)snprintf(name, sizeof(name), "f%u", i);
            remote_cache_add(cache, &moment, dir, &entry);
        }
        remote_cache_whole(cache, &moment, dir);
    }
    assert_true(remote_cache_count(cache) <= 131072);
    assert_int_equal(find(cache, "d199/f0"), REMOTE_THERE);
    assert_int_equal(find(cache, "d0/f0"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "d0", &n), 0);
    remote_cache_free(cache);
}

static void a_second_miss_asks_for_the_listing(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);

    (void)state;
    assert_false(remote_cache_miss(cache, "d"));
    assert_true(remote_cache_miss(cache, "d"));
    assert_false(remote_cache_miss(cache, ""));
    remote_cache_free(cache);
}

static void of_two_listings_at_one_time_one_is_kept(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    const struct provider_entry a = {.name = "a", .attr = a_file};
    const struct provider_entry b = {.name = "b", .attr = a_file};
    struct remote_moment first = remote_cache_moment(cache);
    struct remote_moment second = remote_cache_moment(cache);
    unsigned n;

    (void)state;
    assert_true(remote_cache_begin(cache, &first, "d"));
    remote_cache_add(cache, &first, "d", &a);
    assert_true(remote_cache_begin(cache, &second, "d"));
    remote_cache_add(cache, &first, "d", &b);
    remote_cache_whole(cache, &first, "d");
    assert_int_equal(find(cache, "d/a"), REMOTE_UNKNOWN);
    assert_int_equal(find(cache, "d/b"), REMOTE_UNKNOWN);
    assert_int_equal(count(cache, "d", &n), 0);
    remote_cache_add(cache, &second, "d", &a);
    remote_cache_whole(cache, &second, "d");
    assert_int_equal(find(cache, "d/a"), REMOTE_THERE);
    assert_int_equal(find(cache, "d/b"), REMOTE_ABSENT);
    remote_cache_free(cache);
}

/* The names that came last, and those that are told anew. */
static void a_directory_that_is_too_large_is_kept_in_part(void **state)
{
    struct remote_cache *cache = remote_cache_new(LONG_MS);
    struct remote_moment moment = remote_cache_moment(cache);
    struct provider_entry entry = {.attr = a_file};
    char path[32];
    unsigned n;

    (void)state;
    assert_true(remote_cache_begin(cache, &moment, "d"));
    for (unsigned i = 0; i < 200000; i++) {
        (void)snprintf(path, sizeof(path), "f%u", i);
        entry.name = path;
        remote_cache_add(cache, &moment, "d", &entry);
    }
    remote_cache_whole(cache, &moment, "d");
    assert_true(remote_cache_count(cache) <= 131072);
    assert_int_equal(count(cache, "d", &n), 0);
    assert_int_equal(find(cache, "d/none"), REMOTE_UNKNOWN);
    remote_cache_learn(cache, &moment, "d/f199999", &a_file);
    assert_int_equal(find(cache, "d/f199999"), REMOTE_THERE);
    assert_true(remote_cache_count(cache) <= 131072);
    remote_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_is_too_large_is_kept_in_part),
        cmocka_unit_test(a_whole_listing_knows_what_is_not_there),
        cmocka_unit_test(nothing_holds_longer_than_its_time),
        cmocka_unit_test(a_change_ends_all_at_once),
        cmocka_unit_test(an_answer_older_than_our_change_is_not_kept),
        cmocka_unit_test(a_change_within_a_listing_keeps_the_rest),
        cmocka_unit_test(what_lies_below_is_forgotten_too),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(a_second_miss_asks_for_the_listing),
        cmocka_unit_test(of_two_listings_at_one_time_one_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
