/* The sums of a wgmma instruction in asm: their places in its text, and the operands, by how many a thread has. */
#ifndef QUIRE_TESTS_SIMT_FRAGMENTS_WGMMA_LISTS_CUH
#define QUIRE_TESTS_SIMT_FRAGMENTS_WGMMA_LISTS_CUH

#define LIST_4 "%0,%1,%2,%3"
#define LIST_8 \
    LIST_4 "," \
           "%4,%5,%6,%7"
#define LIST_16 \
    LIST_8 "," \
           "%8,%9,%10,%11,%12,%13,%14,%15"
#define LIST_32 \
    LIST_16 "," \
            "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LIST_64 \
    LIST_32 "," \
            "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
            "%56,%57,%58,%59,%60,%61,%62,%63"
#define LIST_128 \
    LIST_64 "," \
            "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87," \
            "%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108," \
            "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define OUT_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OUT_8(i) OUT_4(i), OUT_4(i + 4)
#define OUT_16(i) OUT_8(i), OUT_8(i + 8)
#define OUT_32(i) OUT_16(i), OUT_16(i + 16)
#define OUT_64(i) OUT_32(i), OUT_32(i + 32)
#define OUT_128(i) OUT_64(i), OUT_64(i + 64)

#endif
