// Threads that end. Some are joined, some detached, some neither. "kept" ones can still be joined: their pthread_t is
// in a global variable. The program says how many of each it has made, and dies; with "join", while it joins another.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MANY = 40 };
pthread_t kept[MANY];
static pthread_attr_t attributes;
static pid_t begun[4 * MANY];
static int count_begun, made;

static void begin(void) {
  pid_t tid = syscall(SYS_gettid);
  __atomic_store_n(&begun[__atomic_fetch_add(&count_begun, 1, __ATOMIC_SEQ_CST)], tid, __ATOMIC_SEQ_CST);
}

static void *work_lost(void *argument) {
  begin();
  return argument;
}
static void *work_exits(void *argument) {
  begin();
  pthread_exit(argument);
}
static void *work_kept(void *argument) { return work_lost(argument); }
static void *work_joined(void *argument) { return work_lost(argument); }
static void *work_detached(void *argument) { return work_lost(argument); }
static void *work_waits(void *argument) {
  for (;;)
    pause();
  return argument;
}

static void start(pthread_t *thread, void *(*function)(void *)) {
  if (pthread_create(thread, &attributes, function, 0))
    abort();
}

// All threads have ended: the kernel no longer knows their numbers.
static void wait_for_all(void) {
  for (int number = 0; number < made; number++)
    while (!__atomic_load_n(&begun[number], __ATOMIC_SEQ_CST) || !syscall(SYS_tgkill, getpid(), begun[number], 0))
      usleep(1000);
}

static __attribute__((noinline)) void make(int lost, int keep, int joined, int detached) {
  pthread_t thread;
  made = lost + keep + joined + detached;
  for (int count = 0; count < lost; count++)
    start(&thread, count % 4 ? work_lost : work_exits);
  for (int count = 0; count < keep; count++)
    start(&kept[count], work_kept);
  for (int count = 0; count < detached; count++) {
    start(&thread, work_detached);
    pthread_detach(thread);
  }
  for (int count = 0; count < joined; count++) {
    start(&thread, work_joined);
    pthread_join(thread, 0);
  }
  memset(&thread, 0, sizeof thread);
}

static __attribute__((noinline)) void scrub(void) {
  volatile char bytes[32768];
  for (unsigned at = 0; at < sizeof bytes; at++)
    bytes[at] = 0;
}

static void *kill_later(void *argument) {
  usleep(300000); // the first thread waits in pthread_join() by then; the test does not depend on it
  abort();
  return argument;
}

int main(int count, char **arguments) {
  // LOST KEPT JOINED DETACHED KILOBYTES [join]
  int numbers[5];
  for (int index = 0; index < 5; index++)
    numbers[index] = count > index + 1 ? atoi(arguments[index + 1]) : 0;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (size_t)numbers[4] << 10);
  make(numbers[0], numbers[1], numbers[2], numbers[3]);
  wait_for_all();
  pthread_t waiting;
  if (count > 6) {
    pthread_t killer;
    start(&waiting, work_waits);
    start(&killer, kill_later);
    pthread_join(waiting, 0);
  }
  scrub();
  raise(SIGABRT);
}
