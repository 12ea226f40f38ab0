#define _GNU_SOURCE
#include "emulate.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What this process was started with: its own environment may be emptied before an exec. */
static char remembered[EMULATOR_MAX_BYTES];

#ifdef __aarch64__
static const bool runs_aarch64 = true;
#else
static const bool runs_aarch64 = false;
#endif

static const char *variable(const char *name, char *const envp[])
{
    size_t length = strlen(name);
    for (; envp && *envp; envp++)
        if (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=')
            return *envp + length + 1;
    return NULL;
}

static bool is_aarch64_elf(const char *path)
{
    unsigned char head[20]; /* up to e_machine, the same in both ELF classes */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, head, sizeof head);
    close(fd);
    return got == (ssize_t)sizeof head && memcmp(head, ELFMAG, SELFMAG) == 0 &&
           head[EI_DATA] == ELFDATA2LSB && (head[18] | head[19] << 8) == EM_AARCH64;
}

/* Offset and length of the loader's name in an ELF program, of either class; false: none. */
static bool find_loader(int fd, uint64_t *offset, uint64_t *length)
{
    Elf64_Ehdr wide;
    Elf32_Ehdr narrow;
    if (pread(fd, &wide, sizeof wide, 0) != (ssize_t)sizeof wide ||
        memcmp(wide.e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    memcpy(&narrow, &wide, sizeof narrow);
    bool is_wide = wide.e_ident[EI_CLASS] == ELFCLASS64;
    uint64_t at = is_wide ? wide.e_phoff : narrow.e_phoff;
    unsigned count = is_wide ? wide.e_phnum : narrow.e_phnum;
    for (; count > 0; count--, at += is_wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)) {
        Elf64_Phdr part;
        Elf32_Phdr narrow_part;
        if (pread(fd, &part, sizeof part, (off_t)at) < (ssize_t)sizeof narrow_part)
            return false;
        memcpy(&narrow_part, &part, sizeof narrow_part);
        *offset = is_wide ? part.p_offset : narrow_part.p_offset;
        *length = is_wide ? part.p_filesz : narrow_part.p_filesz;
        if ((is_wide ? part.p_type : narrow_part.p_type) == PT_INTERP)
            return true;
    }
    return false;
}

bool lacks_interpreter(const char *path, char *text, size_t size)
{
    char head[256] = { 0 };
    const char *kind = "interpreter", *name = head + 2;
    uint64_t offset, length;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pread(fd, head, sizeof head - 1, 0) < 2) {
        close(fd);
        return false;
    }
    if (memcmp(head, "#!", 2) == 0) {
        name += strspn(name, " \t");
        head[name - head + (ptrdiff_t)strcspn(name, " \t\n")] = '\0'; /* a '\r' is of the name */
    } else if (find_loader(fd, &offset, &length) && length < sizeof head) {
        memset(head, 0, sizeof head);
        kind = "loader";
        name = head;
        if (pread(fd, head, length, (off_t)offset) < 0)
            head[0] = '\0';
    } else {
        head[2] = '\0';
    }
    close(fd);
    if (!*name || access(name, F_OK) == 0)
        return false;
    snprintf(text, size, "its %s %s is not there", kind, name);
    return true;
}

const char *emulator_for(const char *path, char *const envp[])
{
    if (runs_aarch64)
        return NULL;
    const char *emulator = variable(EMULATOR_VARIABLE, envp);
    if (!emulator)
        emulator = remembered;
    return *emulator && is_aarch64_elf(path) ? emulator : NULL;
}

void emulator_remember(void)
{
    const char *emulator = getenv(EMULATOR_VARIABLE);
    if (emulator && strlen(emulator) < sizeof remembered)
        strcpy(remembered, emulator);
}

bool emulated_prepare(struct emulated *emulated, const char *emulator)
{
    size_t length = strlen(emulator);
    emulated->count = 0;
    if (length >= sizeof emulated->text) {
        errno = E2BIG;
        return false;
    }
    memcpy(emulated->text, emulator, length + 1);
    for (char *next = emulated->text; next;) {
        if (emulated->count == EMULATOR_MAX_WORDS) {
            errno = E2BIG;
            return false;
        }
        emulated->words[emulated->count++] = next;
        if ((next = strchr(next, ' ')))
            *next++ = '\0';
    }
    return true;
}

static size_t count_words(char *const words[])
{
    size_t count = 0;
    while (words && words[count])
        count++;
    if (count > EMULATED_MAX_WORDS) {
        errno = E2BIG;
        return 0;
    }
    return count + 1;
}

size_t emulated_argv_size(const struct emulated *emulated, char *const argv[])
{
    size_t count = count_words(argv);
    return count ? emulated->count + 1 + count : 0;
}

size_t emulated_envp_size(char *const envp[])
{
    return count_words(envp);
}

void emulated_argv(const struct emulated *emulated, const char *path, char *const argv[],
                   char *filled[])
{
    size_t next = 0;
    while (next < emulated->count) {
        filled[next] = emulated->words[next];
        next++;
    }
    filled[next++] = (char *)(uintptr_t)path; /* exec takes argv as char *const[], unchanged */
    if (argv && argv[0])
        for (argv++; *argv; argv++)
            filled[next++] = *argv;
    filled[next] = NULL;
}

void emulated_envp(char *const envp[], char *filled[])
{
    for (; envp && *envp; envp++)
        if (strncmp(*envp, "LD_PRELOAD=", 11) != 0)
            *filled++ = *envp;
    *filled = NULL;
}

int emulated_exec_by(exec_function real, const char *path, char *const argv[], char *const envp[])
{
    const char *emulator = emulator_for(path, envp);
    if (!emulator)
        return real(path, argv, envp);
    if (access(path, X_OK) != 0) /* the emulator would run what the kernel refuses */
        return -1;
    struct emulated emulated;
    if (!emulated_prepare(&emulated, emulator))
        return -1;
    size_t arguments = emulated_argv_size(&emulated, argv), variables = emulated_envp_size(envp);
    if (!arguments || !variables)
        return -1;
    char *new_argv[arguments], *new_envp[variables];
    emulated_argv(&emulated, path, argv, new_argv);
    emulated_envp(envp, new_envp);
    return real(emulated.words[0], new_argv, new_envp);
}

int emulated_exec(const char *path, char *const argv[], char *const envp[])
{
    return emulated_exec_by(execve, path, argv, envp);
}

bool find_program(const char *name, const char *search, char *path, size_t size)
{
    struct stat status;
    int error = ENOENT;
    if (strchr(name, '/')) {
        if ((size_t)snprintf(path, size, "%s", name) < size)
            return true;
        errno = ENAMETOOLONG;
        return false;
    }
    if (!search)
        search = "/bin:/usr/bin";
    while (*name) {
        size_t length = strcspn(search, ":");
        int written = length ? snprintf(path, size, "%.*s/%s", (int)length, search, name)
                             : snprintf(path, size, "./%s", name);
        if ((size_t)written < size && stat(path, &status) == 0 && S_ISREG(status.st_mode)) {
            if (access(path, X_OK) == 0)
                return true;
            error = EACCES;
        }
        if (!search[length])
            break;
        search += length + 1;
    }
    errno = error;
    return false;
}
