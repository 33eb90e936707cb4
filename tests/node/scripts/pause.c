/* The process that keeps a pod's namespaces: it waits, buries the dead, and ends when told. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
  (void)signal;
  _exit(0);
}

static void bury(int signal) {
  (void)signal;
  while (waitpid(-1, 0, WNOHANG) > 0)
    ;
}

int main(void) {
  struct sigaction ending = {.sa_handler = end};
  struct sigaction burying = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &ending, 0);
  sigaction(SIGTERM, &ending, 0);
  sigaction(SIGCHLD, &burying, 0);
  for (;;)
    pause();
}
