package match

import "testing"

// TestTextsThatAreNoAddress do not allocate, nor do addresses: callers write them.
func TestTextsThatAreNoAddress(t *testing.T) {
	for text, is := range map[string]bool{
		"": false, "12345": false, "alice": false, "deadbeef": false, "1.2.3.4:80": false, "12:30": false, "fe80::1%eth0": false,
		"1.2.3.4": true, "::1": true, "2001:DB8::1": true, "::ffff:10.0.0.1": true,
		"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255": true,
	} {
		if allocs := testing.AllocsPerRun(10, func() {
			if _, ok := ParseAddress(text); ok != is {
				t.Errorf("%q is an address: %v", text, ok)
			}
		}); allocs > 0 {
			t.Errorf("%q: %v allocations", text, allocs)
		}
	}
}
