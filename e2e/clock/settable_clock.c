/* A calendar that can be set while a program runs, for tests: to be preloaded (LD_PRELOAD).
 *
 * Linux has no namespace of its own for CLOCK_REALTIME, and a test must not set its machine's clock. libfaketime, which does the same and
 * more, cannot be loaded into Envoy: it asks the loader for symbols that there are not, the loader allocates memory for the answer, the
 * allocator that is linked into Envoy calls poll, which libfaketime has also replaced, and waits for itself.
 *
 * CALENDAR is eight bytes: the seconds, signed and in the machine's byte order, by which the calendar differs from the machine's.
 * CLOCK_MONOTONIC stays what it is, as when somebody sets a clock. Timers of the kernel that were given a time of the calendar (futexes
 * with FUTEX_CLOCK_REALTIME, timerfd) do not notice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char CALENDAR[] = "/dev/shm/packrat-calendar";
static volatile const int64_t *offset;

__attribute__((constructor)) static void open_calendar(void) {
  int file = open(CALENDAR, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  if (ftruncate(file, sizeof *offset) == 0) {
    void *memory = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) offset = memory;
  }
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  /* (the C library's own function cannot be asked for before the program's allocator works) */
  if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI) now->tv_sec += offset ? *offset : 0;
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec time;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}
