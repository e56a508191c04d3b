package fdbpq

// ListedLife is how long pushes rely on an earlier batch that saw their queue listed.
const ListedLife = listedLife
