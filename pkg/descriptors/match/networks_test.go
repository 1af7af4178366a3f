package match

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// Networks that are nested, side by side, at both ends of the addresses and crowded in one place,
// against a model that asks each of them.
func TestNetworks(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		address := func() netip.Addr {
			bytes := [16]byte{}
			crowd := random.IntN(5)
			for i := range bytes {
				switch {
				case crowd == 0:
					bytes[i] = byte(random.Uint32())
				case random.IntN(3) == 0:
					bytes[i] = byte(1 << random.IntN(8) * random.IntN(2))
				case crowd == 1:
					bytes[i] = 0xff
				}
			}
			if random.IntN(2) == 0 {
				return netip.AddrFrom4([4]byte(bytes[12:]))
			}
			return netip.AddrFrom16(bytes)
		}
		known := map[netip.Prefix]int32{}
		var list []network
		var asked []netip.Addr
		for range random.IntN(200) {
			a := address().Unmap()
			p, _ := a.Prefix(a.BitLen() - random.IntN(a.BitLen()+1)*random.IntN(2))
			if _, again := known[p]; !again {
				known[p] = int32(len(list))
				list = append(list, network{p, int32(len(list))})
			}
			asked = append(asked, p.Addr(), p.Addr().Prev(), p.Addr().Next())
		}
		found := newNetworks(list)
		for range 200 {
			asked = append(asked, address())
		}
		for _, a := range asked {
			if !a.IsValid() {
				continue
			}
			a = a.Unmap()
			owner, bits := int32(-1), int16(-1)
			for p, of := range known {
				if p.Contains(a) && int16(p.Bits()) > bits {
					owner, bits = of, int16(p.Bits())
				}
			}
			gotOwner, gotBits := found.find(a)
			if gotBits != bits || bits >= 0 && gotOwner != owner {
				t.Fatalf("seed %d: %s is in number %d with %d bits, want %d with %d", seed, a, gotOwner, gotBits, owner, bits)
			}
		}
	}
}
