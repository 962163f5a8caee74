/* What Linux has and macOS, as far as we know, has not: using it in a file that is compiled on
 * both is an error here (test_portable.sh). The system's own headers come first, since they may
 * use it. Written down by hand, from Apple's published headers and manual pages. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <math.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* May be asked for with #ifdef. */
#undef __linux__
#undef IPV6_MULTICAST_ALL
#undef IP_MULTICAST_ALL
#undef MADV_DONTFORK
#undef MADV_HUGEPAGE
#undef MADV_NOHUGEPAGE
#undef MADV_POPULATE_READ
#undef MADV_POPULATE_WRITE
#undef MADV_REMOVE
#undef MAP_HUGETLB
#undef MAP_LOCKED
#undef MAP_POPULATE
#undef MSG_ZEROCOPY
#undef POLLRDHUP
#undef RUSAGE_THREAD
#undef SO_BUSY_POLL
#undef SO_DOMAIN
#undef SO_PEERCRED
#undef SOCK_CLOEXEC
#undef TCP_KEEPIDLE
#undef TCP_QUICKACK
#undef TCP_USER_TIMEOUT
#undef _SC_AVPHYS_PAGES

#pragma GCC poison SOCK_NONBLOCK MFD_CLOEXEC O_TMPFILE O_PATH F_ADD_SEALS SCHED_BATCH SCHED_IDLE
#pragma GCC poison CLOCK_MONOTONIC_COARSE PTHREAD_MUTEX_ADAPTIVE_NP st_mtim st_atim st_ctim
#pragma GCC poison accept4 pipe2 dup3 eventfd epoll_create1 epoll_wait timerfd_create signalfd \
    memfd_create
#pragma GCC poison ppoll sendmmsg recvmmsg mremap fallocate posix_fallocate posix_fadvise
#pragma GCC poison clock_nanosleep pthread_condattr_setclock pthread_cond_clockwait \
    pthread_mutex_timedlock
#pragma GCC poison pthread_timedjoin_np pthread_tryjoin_np pthread_barrier_init \
    pthread_barrier_wait
#pragma GCC poison pthread_spin_lock sem_timedwait pthread_setaffinity_np pthread_getaffinity_np
#pragma GCC poison sched_setaffinity sched_getaffinity sched_getcpu cpu_set_t CPU_SET gettid \
    syscall prctl
#pragma GCC poison getrandom getauxval strchrnul mempcpy memrchr program_invocation_name
#pragma GCC poison program_invocation_short_name execvpe canonicalize_file_name get_nprocs \
    secure_getenv
#pragma GCC poison sigabbrev_np sigdescr_np versionsort qsort_r
