package tuple_test

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

func Example() {
	items := tuple.NewSubspace(tuple.Tuple{"pq", "jobs", "i"})
	key := items.Pack(tuple.Tuple{int64(-5), int64(300), []byte("random")})

	item, err := items.Unpack(key)
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(item[0], item[1])
	fmt.Printf("%x\n", key[len(items.Bytes()):])
	// Output:
	// -5 300
	// 13fa16012c0172616e646f6d00
}
