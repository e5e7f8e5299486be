"""Hashes the decoded pixels of fixed images: this identifies a decoder's behaviour better than a version number."""

from __future__ import annotations

import base64
import functools
import hashlib

from podline.data.pictures import Form, PictureError, picture_of
from podline.documents.manifest import Fit

# Small synthetic images (at most 20 × 24 pixels) in base85, one for each decoder and each conversion to 8-bit RGB.
_IMAGES = (
    # JPEG
    (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV01XKW3knDg3knMk4h;_zAQcl55)&sJ9v2`kDKRiEDJ?8BI!Zn>HbyrrEkIX6ModmpQ&KWMT47pHU`k"
        "O^PygEhLjevB4iga*CKVMXPc<zyPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPf!2A01*fP7yuLl0U`hb5"
        "di}c0sq7R82|wQ0s{a50000000000000041p)&G|HJ?v5C8%K0s;d80000000000009C30|W&T5+N~BasR{s7y$qR0{{R30000000000000C"
        "90RsmA!~h`?00II50|fy900000000000RjL6Ap{W>1rif6GeQ5_01N{G00I#M5dc2`wAWfNv8@&!I|-*jkgIj<Pl8OS*JrlbTzcy>#&eABzh"
        "M1J#dqyr$T6<QRq_27*qsCHD(-y5p*6D}dG`@N7rtd&&Y)ndoq?{e2DdeiIT8s_*Pqylr`J+|1_Lr^v4R%|GJ4iJh=`3=q}XB}D6Eahpa0n"
    ),
    # CMYK JPEG
    (
        "|JeWT01iQ9Z(?NtWB>pF0095n07C#24i6F!4HOa(5*HN|7#=bq9vmDVJuEIHGD$#8OGiLPMNnFEVo+6WRz*f+h-Gbedx3(1PGF6fjD41Ket~"
        "@dzyK5o02lxi1Va%3O%VWD5dcdO0RO}Q82|tR0|5X40000000000000060|W&D|HJ?%5C8%K0R#a91Oos700000009C30|W&T5+M^YK~e@3Q"
        "DG!vk^kBN4g^C0O#oQ{O8@{r0G~!~c$b0kGVK<O5JjDD7$5lfmh$&l=QH#S)YG#sHl4R)E@|h?9hN0xUIn>7vSAp<)L6eE{?0ksh?y6mHnIJ"
        "}EoqsD9a(-tVqw~K&PUUPXwKJO`pN)%gy_<K@ocmmz2%&I<ABDm&ry9jC8ztCOe=A%OBr`P8FW7}%kwlBPA;Lg^@Q8Tp;*W;@mEhr@r}0;vG"
        "f`|Y<P{pgs}Ndj6yG?bt$bv`&paR7_*a#tD1@jT%jji6tD*)vn2Bs=zB*hH2S;=xb}qq*#"
    ),
    # PNG of 16 bits with alpha
    (
        "iBL{Q4GJ0x0000DNk~Le0000A0000C5C#AM01Nx@;{X5wGf6~2R4C7VQz3H1Fbv#I4Gsz(G&~qscu&X^`h-5APr4@@EHo?>JSZ4gS&?lynQ1"
        "bzEJt3i*2>$8FFXK{y}*hE+2T3^-(WSMK=8CU<F5YGGf3ATmMNM8B%2%5`H_FtBv?d9;@ld;mO{!5&R~F02PvLU{`J`aVI}6Ujr(@?lf@-yK"
        ";qyWxRI?)3|k4}zDz)kIS0!JS!ici{M30v1u7vqcOE?HDdD&Z_<qHvlNA?D{I#VUe$>BI3ik3|RzaOz@S%QFf79$5Z#rJpi(2)m%2`|iF?Oq"
        "SS^BAaTx`B{DTd;^T-mBfINkD4<fu;@`Oq%eZK;5@+*Lz5ZDnUNRAam499R#1>(x2nUEc^tQ~#0w0j>WyWRL^p;1dqTQnzzwQt!5N|26*y*Q"
        "Iu)rk@Tq00000NkvXXu0mjf"
    ),
    # WebP
    (
        "Qb|TexBvhES4BclR!}$~tN;K2a0URK0V)&#7yv%$T&GQ`B_pCY^;iKQ9SLjzoic=VcYtt)aDk20!1Y%BfB?oYyH_CITAe?%yx9Z*0L~P|Yii"
        "UuYB#97s0?ak=sbJ+#<oZ-7HR+3NDJ2papf~I(}rK=4#`y_`sAcYcLGZ|h)&x83MTEW@fDYhD-^5~A_s_8xJNm0W_+x#0dvr!{}W2wL~PYR0"
        "zWw(74=&{PJ{aa-^w^`g6BX0"
    ),
    # GIF
    (
        "M@dFFH(?Y27yyC*0JhF?kFTIN##uM0Z;6SdQ;uVLbZ~!4RV)Ai000yK7yv*Bxc~_WBoLrr009UE09eRyp}~O!4jd>@AfZKs5+_zfSinHWj0O"
        "q}7y!{=fQ<+nGAtl5B*m93CB95J(4;^EIAKC8X>dS7l?)5+BtY@vMUoIbYD9VQBT9-NWsV$xQ=mzlN)J@6X;SD-m<5JfHE0p&LY@VErZl@#C"
        "{wc!2YO^`)ayW*bS(~`h!yA3qD?bCjR{iZNT&&*Mh$sbtH{KDK^hQi6YI;#T)W<M`4X+ouN3z}3<v-_"
    ),
)
# Shapes and fits that shrink the images evenly, shrink them unevenly, and enlarge them.
_FITS: tuple[tuple[tuple[int, int, int], Fit], ...] = (
    ((12, 12, 3), "letterbox"),
    ((9, 9, 1), "crop"),
    ((37, 37, 3), "squeeze"),
)


@functools.lru_cache(maxsize=1)
def pixels_digest() -> str:
    """Return a hash (16 hexadecimal digits) of the pixels that this machine decodes from fixed images."""
    digest = hashlib.sha256()
    for text in _IMAGES:
        try:
            data = base64.b85decode(text)
            found = [picture_of(data).pixels, *(picture_of(data, form=Form(*form)).pixels for form in _FITS)]
        except PictureError as error:  # the library was built without this format
            digest.update(str(error).encode())
            continue
        for pixels in found:
            digest.update(pixels.tobytes())
    return digest.hexdigest()[:16]
