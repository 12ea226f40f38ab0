/* Programs of another instruction set behind an emulator, inside a virtual board.
 *
 * A virtual board that stands in for an ARM64 board exports LABCTL_SANDBOX_EMULATOR: the words of
 * an emulator's command, each separated by one space, the first an absolute path. On a machine that
 * is not ARM64 itself, an AArch64 ELF program is then started as
 *
 *     <emulator words> <program> <arguments 1..>
 *
 * without LD_PRELOAD, which would name a library of the wrong instruction set. Everything else,
 * and every board without that variable, is an ordinary exec.
 *
 * The agent uses this for jobs; exec_shim.c for programs typed in the sandbox's shell. No memory
 * is taken from the heap: the functions may run between vfork and exec.
 */
#ifndef LABCTL_EMULATE_H
#define LABCTL_EMULATE_H

#include <stdbool.h>
#include <stddef.h>

#define EMULATOR_VARIABLE "LABCTL_SANDBOX_EMULATOR"
#define EMULATOR_MAX_BYTES 1024
#define EMULATOR_MAX_WORDS 32
/* Arguments and variables of an emulated program; more is E2BIG. They live on the stack. */
#define EMULATED_MAX_WORDS 32768

/* Keep this process's emulator for programs that it starts with an emptied environment. */
void emulator_remember(void);

/* The emulator's command when `path` has to go behind it, else NULL. envp: the program's own. */
const char *emulator_for(const char *path, char *const envp[]);

/* Space on the caller's stack for an emulated call. */
struct emulated {
    char text[EMULATOR_MAX_BYTES];
    char *words[EMULATOR_MAX_WORDS];
    size_t count;
};

/* Split the emulator's command; false (errno E2BIG) when it is too long. */
bool emulated_prepare(struct emulated *emulated, const char *emulator);
/* Elements, with the final NULL, that the next two functions fill; 0 with errno E2BIG. */
size_t emulated_argv_size(const struct emulated *emulated, char *const argv[]);
size_t emulated_envp_size(char *const envp[]);
void emulated_argv(const struct emulated *emulated, const char *path, char *const argv[],
                   char *filled[]);
void emulated_envp(char *const envp[], char *filled[]);

typedef int (*exec_function)(const char *path, char *const argv[], char *const envp[]);

/* execve(2), behind the emulator where needed. real: the function that execs. */
int emulated_exec_by(exec_function real, const char *path, char *const argv[],
                     char *const envp[]);
int emulated_exec(const char *path, char *const argv[], char *const envp[]);

/* The file that execvp(3) would start for `name`, into path[size]; false with errno set.
 * A name with a slash is itself; `search` is a PATH, NULL for the usual one. */
bool find_program(const char *name, const char *search, char *path, size_t size);

/* True if a program that is there could not be executed because its loader, or the interpreter that
 * its first line names, is not there: text says so. */
bool lacks_interpreter(const char *path, char *text, size_t size);

#endif
