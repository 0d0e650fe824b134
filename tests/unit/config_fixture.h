/* Registries with profiles and options about configs. */
#ifndef SESSIONFS_TESTS_CONFIG_FIXTURE_H
#define SESSIONFS_TESTS_CONFIG_FIXTURE_H

#include "tests/unit/core_fixture.h"

/* What the next registry is opened with; but for directories and the loop. */
extern struct registry_config config_asked;

/* The providers of tests/fakes. */
extern const struct provider_ops *const config_table[];

/* cmocka set-up: a directory and a loop; fixture_teardown() ends a registry
 * that is open by then. */
int config_setup(void **state);

#define CONFIG_TEST(name)                                                      \
    cmocka_unit_test_setup_teardown(name, config_setup, fixture_teardown)

/* A path in the fixture's directory; lives until four more were made. */
const char *config_path(const struct fixture *fixture, const char *name);

/* Writes profiles/NAME; the registry that is opened next reads it. */
void config_profile(const struct fixture *fixture, const char *name,
                    const char *text);

/* Opens the fixture's registry over a table of providers. */
int config_try_open(struct fixture *fixture,
                    const struct provider_ops *const *ops, struct err *err);
/* The same, and it goes well. */
void config_open(struct fixture *fixture,
                 const struct provider_ops *const *ops);

/* Makes a session by a write to `new`, which goes well. */
struct session *config_new(struct fixture *fixture, const char *text);

/* The text of config.json, the caller's to free. */
char *config_of(struct session *session);
/* Whether that has a part. */
bool config_says(struct session *session, const char *part);

/* Writes config.json. */
int config_write(struct session *session, const char *text, struct err *err);

#endif
