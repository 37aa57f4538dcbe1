/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What an address sanitizer puts before each access that it cannot prove: calls of these. They ask
 * the test instead of a shadow memory, which knows exactly what the instance may touch.
 */
typedef unsigned long long u64;

__attribute__((visibility("default"))) void (*berth_witness)(u64 address, u64 size, unsigned write);

#define SEEN(name, size, write)                                                                    \
	void name(u64 address)                                                                     \
	{                                                                                          \
		berth_witness(address, size, write);                                               \
	}

SEEN(__asan_load1_noabort, 1, 0)
SEEN(__asan_load2_noabort, 2, 0)
SEEN(__asan_load4_noabort, 4, 0)
SEEN(__asan_load8_noabort, 8, 0)
SEEN(__asan_load16_noabort, 16, 0)
SEEN(__asan_store1_noabort, 1, 1)
SEEN(__asan_store2_noabort, 2, 1)
SEEN(__asan_store4_noabort, 4, 1)
SEEN(__asan_store8_noabort, 8, 1)
SEEN(__asan_store16_noabort, 16, 1)

void __asan_loadN_noabort(u64 address, u64 size)
{
	berth_witness(address, size, 0);
}

void __asan_storeN_noabort(u64 address, u64 size)
{
	berth_witness(address, size, 1);
}

void __asan_handle_no_return(void)
{
}
