/* fmaf.c: fmaf() for the whole library on systems whose own fmaf() rounds twice. glibc's and
 * Apple's do not. */
#include "base/fmaf.h"

#include <math.h>

#if !defined(__GLIBC__) && !defined(__APPLE__)
__attribute__((visibility("hidden"))) float fmaf(float x, float y, float z) {
    return exact_fmaf(x, y, z);
}
#endif
