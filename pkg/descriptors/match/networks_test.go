package match

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// Networks of several descriptors that are nested, side by side and at both ends of the addresses
// of a small network, against a model that asks each of them.
func TestNetworks(t *testing.T) {
	cidr := &Kinds[slices.IndexFunc(Kinds[:], func(k Kind) bool { return k.Name == "cidr" })]
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		whole := netip.MustParsePrefix([]string{"0.0.0.0/27", "255.255.255.224/27", "::/123", "2001:db8::ffe0/123"}[random.IntN(4)])
		var addresses []netip.Addr
		for a := whole.Addr(); a.IsValid() && whole.Contains(a); a = a.Next() {
			addresses = append(addresses, a)
		}
		some := func() netip.Prefix {
			p, _ := addresses[random.IntN(len(addresses))].Prefix(whole.Bits() + random.IntN(6))
			return p
		}
		known := map[netip.Prefix]int{}
		x := new(Index)
		for order := range random.IntN(4) + 1 {
			var texts []string
			own := map[netip.Prefix]bool{}
			taken := 0 // the descriptor that has one of the networks
			item := -1 // the first such network
			for range random.IntN(8) + 1 {
				p := some()
				if own[p] {
					continue
				}
				if known[p] > 0 && item < 0 {
					taken, item = known[p], len(texts)
				}
				own[p] = true
				texts = append(texts, p.String())
			}
			m, wrong := New(cidr, texts, false, false)
			not, _ := New(cidr, texts, true, false)
			if wrong != nil {
				t.Fatalf("seed %d: %v", seed, wrong)
			}
			other, first := x.Add(m, order+1)
			if other != taken || other > 0 && first != item {
				t.Fatalf("seed %d: %v has the networks of %d, at %d; want %d, at %d", seed, texts, other, first, taken, item)
			}
			for p := range own {
				if taken == 0 {
					known[p] = order + 1
				}
			}
			for range 20 {
				p, in, out := some(), false, false
				for _, a := range addresses {
					if p.Contains(a) {
						in, out = in || m.Takes(a.String()), out || not.Takes(a.String())
					}
				}
				if m.TakesSome(p) != in || not.TakesSome(p) != out {
					t.Fatalf("seed %d: of %s in %v some are in: %v, and some not: %v; want %v and %v", seed, p, texts, m.TakesSome(p), not.TakesSome(p), in, out)
				}
			}
		}
		x.Seal()
		for _, a := range addresses {
			want, longest := 0, netip.Prefix{}
			for p, of := range known {
				if p.Contains(a) && (want == 0 || p.Bits() > longest.Bits()) {
					want, longest = of, p
				}
			}
			got, rank := x.Find(nil, a.String())
			if (rank == ByNetwork) != (want > 0) || want > 0 && (got != want || x.Network(a.String()) != longest) {
				t.Fatalf("seed %d: %s goes to number %d, rank %v; want %d by %s", seed, a, got, rank, want, longest)
			}
		}
	}
}
