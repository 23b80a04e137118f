"""Bessel functions of orders 0 and 1.

Sources: the intervals and forms are those of the Cephes library (S. L. Moshier, Methods and Programs for Mathematical
Functions, 1989): series in x or x*x up to 8 (K: 2), beyond it series in 1/x of the function without its exponential, or
of modulus and phase (DLMF 10.17). The coefficients are our own, computed in 50 digits. Near zeros of J and Y the error
is absolute: some units in the last place of 1.
"""

from __future__ import annotations

import math

from ...schema.opdef import Array, ArrayModule
from .polynomials import chebyshev, numbers
from .table import define_special

# Chebyshev series: exp(-x) * I0(x), and I1(x) / x, in x / 4 - 1; sqrt(x) * exp(-x) * I(x) in 16 / x - 1.
I0_NEAR = numbers(
    """
    0.33839763720473803 -0.3046826723431984 0.17162090152220877 -0.09490109704804764 0.04930528423967071
    -0.02373741480589947 0.010546460394594998 -0.004324309995050576 0.0016394756169413357 -0.0005763755745385824
    0.00018850288509584165 -5.754195010082104e-05 1.6448448070728896e-05 -4.4167383584587505e-06
    1.1173875391201037e-06 -2.670793853940612e-07 6.046995022541919e-08 -1.300025009986248e-08
    2.6598237246823866e-09 -5.189795601635263e-10 9.675809035373237e-11 -1.726826291441556e-11
    2.95505266312964e-12 -4.856446783111929e-13 7.676185498604936e-14 -1.1685332877993451e-14
    1.715391285555133e-15 -2.431279846547955e-16 3.3307945188222384e-17
    """
)
I0_FAR = numbers(
    """
    0.4022452055070544 0.0033691164782556943 6.889758346916825e-05 2.8913705208347567e-06 2.0489185894690638e-07
    2.266668990498178e-08 3.3962320257083865e-09 4.94060238822497e-10 1.1889147107846439e-11
    -3.1499165279632416e-11 -1.3215811840447713e-11 -1.7941785315068062e-12 7.180124451383666e-13
    3.8527783827421426e-13 1.54008621752141e-14 -4.150569347287222e-14 -9.554846698828307e-15
    3.8116806693526224e-15 1.7725601330565263e-15 -3.425485619677219e-16 -2.8276239805165836e-16
    3.461222867697461e-17 4.46562142029676e-17
    """
)
I1_NEAR = numbers(
    """
    0.12629359322181682 -0.17641651835783406 0.1026436586898471 -0.05294598120809499 0.024726449030626516
    -0.010564084894626197 0.004156422944312888 -0.0015135724506312532 0.0005122859561685758
    -0.00016176081582589674 4.781565107550054e-05 -1.3273163656039436e-05 3.4702513081376785e-06
    -8.568720264695455e-07 2.0032947535521353e-07 -4.445059128796328e-08 9.381537386495773e-09
    -1.8872497517228294e-09 3.625590281552117e-10 -6.663489723502027e-11 1.1736186298890901e-11
    -1.9839743977649436e-12 3.223793365945575e-13 -5.042185504727912e-14 7.600684294735408e-15
    -1.1055969477353862e-15 1.5536319577362005e-16 -2.111421214358166e-17
    """
)
I1_FAR = numbers(
    """
    0.38928811750914005 -0.009761097491361469 -0.00011058893876262371 -3.882564808877691e-06
    -2.512236237870209e-07 -2.6314688468895196e-08 -3.835380385964237e-09 -5.589743462196584e-10
    -1.8974958123505413e-11 3.2526035830154884e-11 1.4125807436613782e-11 2.0356285441470896e-12
    -7.198551776245908e-13 -4.0835511110921974e-13 -2.1015418427726643e-14 4.272440016711951e-14
    1.0420276984128802e-14 -3.8144030724370075e-15 -1.8803547755107825e-15 3.3082023109209285e-16
    2.96262899764595e-16 -3.209525921993424e-17 -4.6503053684893586e-17
    """
)
# K0(x) + log(x / 2) * I0(x), and x * (K1(x) - log(x / 2) * I1(x)), in x * x / 2 - 1;
# and K(x), times sqrt(x) * exp(x), in 4 / x - 1.
K0_NEAR = numbers(
    """
    -0.2676636966169514 0.3442898999246285 0.0359799365153615 0.001264615411446926 2.286212103119452e-05
    2.5347910790261494e-07 1.904516377220209e-09 1.0349695257633625e-11 4.2598161427910826e-14
    1.3744654358807508e-16
    """
)
K0_FAR = numbers(
    """
    1.2201515410329777 -0.0314481013119645 0.0015698838857300533 -0.00012849549581627802 1.39498137188765e-05
    -1.8317555227191195e-06 2.766813639445015e-07 -4.660489897687948e-08 8.574034017414225e-09
    -1.6975345093890614e-09 3.5773972814003283e-10 -7.957489244477396e-11 1.8559491149549264e-11
    -4.514597883374519e-12 1.1403405882073441e-12 -2.9800969231481784e-13 8.032890775068375e-14
    -2.2275133267462965e-14 6.340076476276646e-15 -1.848593377920907e-15 5.5120559994043335e-16
    -1.6782311257549006e-16 5.2103917776435543e-17
    """
)
K1_NEAR = numbers(
    """
    0.7626501136694739 -0.3531559607765449 -0.12261118082265715 -0.006975723859639864 -0.0001730288957513052
    -2.4334061415659684e-06 -2.213387630734726e-08 -1.4114883926335278e-10 -6.666901694199329e-13
    -2.427449850519366e-15
    """
)
K1_FAR = numbers(
    """
    1.3603130952422213 0.10392373657681724 -0.002857816859622779 0.00019521551847135162 -1.936197974166083e-05
    2.406484947837217e-06 -3.5019606030878126e-07 5.7410841254500495e-08 -1.0345762465678097e-08
    2.0150497551970347e-09 -4.1903547593419254e-10 9.218315187605315e-11 -2.129967838427791e-11
    5.139639673482343e-12 -1.2891739609498229e-12 3.348419666052243e-13 -8.976705182010146e-14
    2.4771544242195988e-14 -7.0198370892147685e-15 2.038703166239861e-15 -6.057047270643018e-16
    1.8380935752430455e-16 -5.689462849193648e-17
    """
)
# J0(x), J1(x) / x, and what Y has beside logarithm and pole, in x * x / 32 - 1.
J0_NEAR = numbers(
    """
    0.15772797147489012 -0.008723442352852221 0.2651786132033368 -0.37009499387264977 0.15806710233209725
    -0.034893769411408884 0.004819180069467605 -0.00046062616620627504 3.246032882100508e-05
    -1.7619469077621507e-06 7.608163592418782e-08 -2.679253530557673e-09 7.848696314479465e-11
    -1.9438346867370164e-12 4.125320595634374e-14 -7.588508125447546e-16 1.2218515873961411e-17
    """
)
J1_NEAR = numbers(
    """
    0.08104484632565812 -0.1489751450676521 0.1609992623572097 -0.08268049176681791 0.022213639654966037
    -0.003646940600769276 0.0004050337728354822 -3.255554866857259e-05 1.9858774049915165e-06
    -9.521984756750436e-08 3.687133759097148e-09 -1.178026622695885e-10 3.160154580348003e-12
    -7.221755239651773e-14 1.4232144003513942e-15 -2.4441972916190464e-17
    """
)
Y0_NEAR = numbers(
    """
    0.03645469809116044 -0.2783237094075825 0.2960499990207148 0.09825508408187864 -0.10755155280627783
    0.031799074084414514 -0.005161397105810715 0.0005498525320039012 -4.1996983149420134e-05
    2.4290361107923793e-06 -1.1049969793472957e-07 4.06651736597911e-09 -1.2374148898289854e-10
    3.1685725528945945e-12 -6.926956032431002e-14 1.3086308625876684e-15 -2.1586201986914482e-17
    """
)
Y1_NEAR = numbers(
    """
    0.038300769852423776 -0.08182561412732826 -0.0248677076121964 0.047967452752746984 -0.01852588451089802
    0.003680607687823511 -0.0004627254060293369 4.06940026958087e-05 -2.6617695125295625e-06
    1.350602691325434e-07 -5.483524110336276e-09 1.8245086841229007e-10 -5.070666636591129e-12
    1.1956162517587948e-13 -2.423162442712473e-15 4.268126513072962e-17
    """
)
# Modulus and phase: P, and Q * x / 8, in 128 / (x * x) - 1.
P0 = numbers(
    """
    0.9994603493475187 -0.0005365220468132117 3.0751847875194745e-06 -5.1705945376060975e-08
    1.6306464635151382e-09 -7.86409137723707e-11 5.168262387349193e-12 -4.3045788699253914e-13
    4.3265957431549404e-14 -5.069034095935236e-15 6.748072215733873e-16 -1.0011513723467786e-16
    1.6305919233744186e-17
    """
)
Q0 = numbers(
    """
    -0.015555854605337009 6.838519942611649e-05 -7.414498411060647e-07 1.7972457247968992e-08
    -7.27191593686632e-10 4.2201219046687385e-11 -3.206747420996635e-12 3.006145125351706e-13
    -3.336328185322427e-14 4.255225040245461e-15 -6.09993013164005e-16 9.662128970303257e-17
    -1.6686065214378146e-17 3.1082440486738143e-18 -6.191115787358145e-19
    """
)
P1 = numbers(
    """
    1.0009030408600137 0.0008989898330859408 -3.987284300488908e-06 6.177633960644299e-08
    -1.8718907491063067e-09 8.816898659582339e-11 -5.704863640395645e-12 4.699195515230542e-13
    -4.6842237839904895e-14 5.452674896044717e-15 -7.221180842274018e-16 1.0667689114335412e-16
    -1.7312313216116335e-17
    """
)
Q1 = numbers(
    """
    0.04677778706953532 -9.62772354915708e-05 9.138615257955454e-07 -2.0959781384083424e-08
    8.229193327650554e-10 -4.686363688176945e-11 3.5152187949686082e-12 -3.2643156743279e-13
    3.5967765829165294e-14 -4.5612523950772974e-15 6.508282957783384e-16 -1.0269147531823243e-16
    1.767635548776479e-17 -3.2834519872981614e-18 6.524081149589261e-19
    """
)
BORDER = 8.0


# --- modified functions


def i0e(xp: ArrayModule, x: Array) -> Array:
    """exp(-abs(x)) * I0(x)."""
    y = xp.abs(x)
    low, high = xp.minimum(y, BORDER), xp.maximum(y, BORDER)
    return xp.where(y < BORDER, chebyshev(I0_NEAR, low / 4 - 1), chebyshev(I0_FAR, 16 / high - 1) / xp.sqrt(high))


def i1e(xp: ArrayModule, x: Array) -> Array:
    """exp(-abs(x)) * I1(x)."""
    y = xp.abs(x)
    low, high = xp.minimum(y, BORDER), xp.maximum(y, BORDER)
    near, far = chebyshev(I1_NEAR, low / 4 - 1) * low, chebyshev(I1_FAR, 16 / high - 1) / xp.sqrt(high)
    return xp.copysign(1.0, x) * xp.where(y < BORDER, near, far)


def grown(xp: ArrayModule, scaled: Array, x: Array) -> Array:
    """scaled * exp(abs(x)), which overflows no earlier than the product."""
    half = xp.exp(xp.abs(x) / 2)
    return xp.where(xp.abs(x) == math.inf, xp.copysign(math.inf, scaled), scaled * half * half)


def i0(xp: ArrayModule, x: Array) -> Array:
    """I0(x)."""
    return grown(xp, i0e(xp, x), x)


def i1(xp: ArrayModule, x: Array) -> Array:
    """I1(x)."""
    return xp.copysign(1.0, x) * grown(xp, xp.abs(i1e(xp, x)), x)


def k_parts(xp: ArrayModule, x: Array) -> tuple[Array, Array, Array, Array]:
    """Is x at most 2? And the arguments: x below, x above, and the logarithm."""
    low, high = xp.where(x > 0, xp.minimum(x, 2.0), 1), xp.maximum(x, 2.0)
    return x <= 2, low, high, xp.log(low / 2)


def positive(xp: ArrayModule, x: Array, found: Array, pole: float) -> Array:
    """A function that is defined for x > 0: NaN below, its pole at 0, and NaN for NaN."""
    return xp.where(x > 0, found, xp.where(x == 0, pole, math.nan))


def k0e(xp: ArrayModule, x: Array) -> Array:
    """exp(x) * K0(x)."""
    is_low, low, high, log = k_parts(xp, x)
    near = (chebyshev(K0_NEAR, low * low / 2 - 1) - log * i0(xp, low)) * xp.exp(low)
    found = xp.where(is_low, near, chebyshev(K0_FAR, 4 / high - 1) / xp.sqrt(high))
    return positive(xp, x, found, math.inf)


def k1e(xp: ArrayModule, x: Array) -> Array:
    """exp(x) * K1(x)."""
    is_low, low, high, log = k_parts(xp, x)
    near = (chebyshev(K1_NEAR, low * low / 2 - 1) / low + log * i1(xp, low)) * xp.exp(low)
    found = xp.where(is_low, near, chebyshev(K1_FAR, 4 / high - 1) / xp.sqrt(high))
    return positive(xp, x, found, math.inf)


def k0(xp: ArrayModule, x: Array) -> Array:
    """K0(x)."""
    return k0e(xp, x) * xp.exp(-x)


def k1(xp: ArrayModule, x: Array) -> Array:
    """K1(x)."""
    return k1e(xp, x) * xp.exp(-x)


# --- functions of the first and second kind


def wave(xp: ArrayModule, order: int, x: Array, *, second: bool) -> Array:
    """J, or Y if `second`, by modulus and phase, for x from 8 on.

    The phase is x - pi/4 or x - 3*pi/4, whose cosine and sine are sums of those of x.
    """
    u = 128 / (x * x) - 1
    p, q = (P0, Q0) if order == 0 else (P1, Q1)
    modulus, phase = chebyshev(p, u), chebyshev(q, u) * 8 / x
    cos, sin = xp.cos(x), xp.sin(x)
    shifted_cos, shifted_sin = (cos + sin, sin - cos) if order == 0 else (sin - cos, -sin - cos)
    turned = modulus * shifted_sin + phase * shifted_cos if second else modulus * shifted_cos - phase * shifted_sin
    return xp.where(x == math.inf, 0, turned / xp.sqrt(math.pi * x))


def j0(xp: ArrayModule, x: Array) -> Array:
    """J0(x)."""
    y = xp.abs(x)
    low, high = xp.minimum(y, BORDER), xp.maximum(y, BORDER)
    return xp.where(y < BORDER, chebyshev(J0_NEAR, low * low / 32 - 1), wave(xp, 0, high, second=False))


def j1(xp: ArrayModule, x: Array) -> Array:
    """J1(x)."""
    y = xp.abs(x)
    low, high = xp.minimum(y, BORDER), xp.maximum(y, BORDER)
    near = chebyshev(J1_NEAR, low * low / 32 - 1) * low
    return xp.copysign(1.0, x) * xp.where(y < BORDER, near, wave(xp, 1, high, second=False))


def y0(xp: ArrayModule, x: Array) -> Array:
    """Y0(x) for x > 0."""
    low, high = xp.where(x > 0, xp.minimum(x, BORDER), 1), xp.maximum(x, BORDER)
    near = chebyshev(Y0_NEAR, low * low / 32 - 1) + 2 / math.pi * xp.log(low / 2) * j0(xp, low)
    return positive(xp, x, xp.where(x < BORDER, near, wave(xp, 0, high, second=True)), -math.inf)


def y1(xp: ArrayModule, x: Array) -> Array:
    """Y1(x) for x > 0."""
    low, high = xp.where(x > 0, xp.minimum(x, BORDER), 1), xp.maximum(x, BORDER)
    near = chebyshev(Y1_NEAR, low * low / 32 - 1) * low + 2 / math.pi * (xp.log(low / 2) * j1(xp, low) - 1 / low)
    return positive(xp, x, xp.where(x < BORDER, near, wave(xp, 1, high, second=True)), -math.inf)


for _function, _summary in (
    (i0, "The modified Bessel function of the first kind of order 0."),
    (i0e, "exp(-abs(x)) * i0(x)."),
    (i1, "The modified Bessel function of the first kind of order 1."),
    (i1e, "exp(-abs(x)) * i1(x)."),
    (k0, "The modified Bessel function of the second kind of order 0."),
    (k0e, "exp(x) * k0(x)."),
    (k1, "The modified Bessel function of the second kind of order 1."),
    (k1e, "exp(x) * k1(x)."),
    (j0, "The Bessel function of the first kind of order 0."),
    (j1, "The Bessel function of the first kind of order 1."),
    (y0, "The Bessel function of the second kind of order 0."),
    (y1, "The Bessel function of the second kind of order 1."),
):
    define_special(_function.__name__, _function, _summary, cost=2)
