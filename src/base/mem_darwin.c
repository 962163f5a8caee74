/* mem_darwin.c: available memory on macOS: free pages, file pages and purgeable pages. The
 * system reclaims the latter two without compressing or writing them. */
#include "base/mem.h"

#include <mach/mach.h>
#include <malloc/malloc.h>
#include <unistd.h>

void mem_give_back(void) {
    (void)malloc_zone_pressure_relief(NULL, 0);
}

uint64_t mem_available(void) {
    vm_statistics64_data_t vm;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    vm_size_t page;
    mach_port_t host = mach_host_self();
    bool known =
        host_page_size(host, &page) == KERN_SUCCESS &&
        host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&vm, &count) == KERN_SUCCESS;
    mach_port_deallocate(mach_task_self(), host);
    if (!known)
        return 0;
    /* Speculative pages are counted as free and as a file's. */
    uint64_t n_free = (uint64_t)vm.free_count - vm.speculative_count;
    return (n_free + vm.external_page_count + vm.purgeable_count) * page;
}

uint64_t mem_total(void) {
    long n = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return n > 0 && size > 0 ? (uint64_t)n * (uint64_t)size : 0;
}

struct mem_resident mem_resident(void) {
    task_vm_info_data_t vm;
    mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
    if (task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&vm, &count) != KERN_SUCCESS)
        return (struct mem_resident){0};
    return (struct mem_resident){.anon_bytes = vm.internal, .file_bytes = vm.external};
}
