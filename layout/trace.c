// Tells which functions of a program ran: linked into it, it puts a breakpoint on the first byte of each, and
// takes it away when it is met. For x86-64 Linux.
//
// FUNCTIONS a file with the offset of each function in the mapped code, in hexadecimal, one a line; without
//           it the program runs as ever
// RAN       a folder, in which each process leaves the offsets of those that ran when it ends, in the order of
//           their first runs. The name of the file begins with the job of the process

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { BREAKPOINT = 0xCC, NONE = 0, WAITED_FOR = 1, FUNCTIONS_MAX = 1 << 17 };

static unsigned char *code, *original, *state;
static size_t length;
// Two threads may meet one function at the same time, so it can be there twice.
static size_t first_runs[FUNCTIONS_MAX], count;

static void met(int number, siginfo_t *info, void *context) {
  (void)number, (void)info;
  greg_t *at = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  size_t offset = (size_t)(*at - 1) - (size_t)code;
  if (offset >= length || state[offset] == NONE) abort();
  size_t place = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
  if (place < FUNCTIONS_MAX) first_runs[place] = offset;
  code[offset] = original[offset];
  *at -= 1;
}

static void *fresh(int protection) {
  void *bytes = mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) abort();
  return bytes;
}

// Finds the mapped code of the program.
static int find(const char *program) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096], access[8];
  unsigned long start, end;
  while (!code && maps && fgets(line, sizeof line, maps)) {
    int read = sscanf(line, "%lx-%lx %7s", &start, &end, access);
    if (read == 3 && access[2] == 'x' && strstr(line, program)) code = (void *)start, length = end - start;
  }
  return maps && !fclose(maps) && code;
}

__attribute__((constructor)) static void begin(void) {
  char program[4096];
  ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
  const char *functions = getenv("FUNCTIONS");
  if (size < 0 || !functions) return;
  program[size] = 0;
  if (!find(program)) return;

  unsigned char *copy = fresh(PROT_READ | PROT_WRITE | PROT_EXEC);
  original = fresh(PROT_READ | PROT_WRITE), state = fresh(PROT_READ | PROT_WRITE);
  memcpy(copy, code, length), memcpy(original, code, length);
  FILE *file = fopen(functions, "r");
  unsigned long offset;
  while (file && fscanf(file, "%lx", &offset) == 1)
    if (offset < length && code + offset != (void *)met) copy[offset] = BREAKPOINT, state[offset] = WAITED_FOR;
  if (file) fclose(file);

  struct sigaction action = {.sa_sigaction = met, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigaction(SIGTRAP, &action, NULL);
  if (mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, code) == MAP_FAILED) abort();
}

// A sidecar has a supervisor and workers.
static const char *job(void) {
  char arguments[4096];
  FILE *file = fopen("/proc/self/cmdline", "r");
  size_t size = file ? fread(arguments, 1, sizeof arguments, file) : 0;
  if (file) fclose(file);
  if (!memmem(arguments, size, "\0sidecar\0", 9)) return "other";
  return memmem(arguments, size, "\0--worker", 9) ? "worker" : "supervisor";
}

__attribute__((destructor)) static void end(void) {
  const char *folder = getenv("RAN");
  char path[4096];
  if (!code || !folder) return;
  snprintf(path, sizeof path, "%s/%s-%d", folder, job(), (int)getpid());
  FILE *file = fopen(path, "w");
  for (size_t place = 0; file && place < count && place < FUNCTIONS_MAX; place++)
    fprintf(file, "%zx\n", first_runs[place]);
  if (file) fclose(file);
}
