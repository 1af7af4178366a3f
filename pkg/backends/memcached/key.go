package memcached

import "example.org/rls/pkg/backends"

const maxKeyLen = 250 // memcached's KEY_MAX_LENGTH

// StoredKey is the name under which memcached stores the cell key: key itself
// where the text protocol can carry it (1 to 250 bytes, no spaces, control
// characters or DEL), else a backends.TextKey.
func StoredKey(key string) string {
	if isLegal(key) && !backends.IsTextKey(key) {
		return key
	}
	return backends.TextKey(key)
}

func isLegal(key string) bool {
	if len(key) == 0 || len(key) > maxKeyLen {
		return false
	}
	for i := 0; i < len(key); i++ {
		if key[i] <= ' ' || key[i] == 0x7f {
			return false
		}
	}
	return true
}
