/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_BANNED_H
#define WB_BANNED_H

/* Calls that may not be used, made compile errors. Included by the compiler's command line in every
 * .c of ours (Makefile.am), after the system headers that declare them. rand() is refused by
 * tests/lint/banned.sh instead: OpenSSL's headers use the word for parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf strtok atoi atol atoll atof gets
#pragma GCC poison gmtime localtime ctime asctime srand

#endif
