/* cmocka with the headers that it wants before itself. */
#ifndef SESSIONFS_TESTS_CMOCKA_H
#define SESSIONFS_TESTS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* Last: it needs the four above. */

#endif
