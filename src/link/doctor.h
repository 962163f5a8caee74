/* doctor.h: checks what the links of this host need, and says what is wrong and how to fix it.
 */
#ifndef LOCKSTEP_LINK_DOCTOR_H
#define LOCKSTEP_LINK_DOCTOR_H

#include "base/status.h"

enum finding_kind { FINDING_FACT, FINDING_GOOD, FINDING_BAD };

/* One line; `mend` is a command or an advice, "" where nothing is wrong. */
struct finding {
    enum finding_kind kind;
    char what[160], mend[160];
};
#define DOCTOR_MAX_FINDINGS 64

/* Looks at RDMA devices (ports, GIDs, MTU), the limit of locked memory, huge pages, shared memory,
 * interfaces and their speeds. Changes nothing. Returns how many findings there are. */
int doctor_look(struct finding findings[DOCTOR_MAX_FINDINGS]);

#endif
